"""State dicts: the tensors of a tree of modules by their dotted names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.variable import requires_grad
from asyncgrad.nn.module_tree import Members
from asyncgrad.nn.parameter import Parameter, is_lazy
from asyncgrad.records import NamedTuple
from asyncgrad.tensor import Tensor


class LoadResult(NamedTuple):
    """The result of `load_state_dict`: the missing and the unexpected keys."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"_IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )


def own_state(module: Members) -> dict[str, Any]:
    """The parameters and persistent buffers of a module itself."""
    return {
        name: tensor
        for name, tensor in (*module._parameters.items(), *module._buffers.items())
        if tensor is not None and name not in module._non_persistent_buffers_set
    }


def load_own(
    module: Members, state_dict: Mapping[str, Any], prefix: str, assign: bool, missing: list[str],
    errors: list[str],
) -> None:  # fmt: skip
    """Load a module's own tensors; collect missing keys and errors."""
    for name, tensor in own_state(module).items():
        key = prefix + name
        if key not in state_dict:
            missing.append(key)
            continue
        given = state_dict[key]
        if not isinstance(given, Tensor):
            errors.append(
                f'While copying the parameter named "{key}", expected asyncgrad.Tensor or '
                f"Tensor-like object from checkpoint but received {type(given)}"
            )
            continue
        shape, saved = (None if is_lazy(one) else one._metadata.shape for one in (tensor, given))
        if shape == () and saved == (1,):
            # PyTorch once saved scalars as tensors of one dimension.
            given, saved = given[0], ()
        if saved != shape:
            errors.append(
                f"size mismatch for {key}: copying a param with shape {saved} from checkpoint, the "
                f"shape in current model is {shape}."
            )
        else:
            try:
                if assign:
                    _assign(module, name, tensor, given)
                elif shape is not None:
                    with no_grad():
                        tensor.copy_(given)
            except Exception as error:
                errors.append(
                    f'While copying the parameter named "{key}", of shape {shape} in the model and '
                    f"{saved} in the checkpoint, an exception occurred: {error}"
                )


def _assign(module: Members, name: str, tensor: Tensor, given: Tensor) -> None:
    """Use the given tensor itself as the parameter or buffer."""
    if not isinstance(tensor, Parameter):
        module._buffers[name] = given
        return
    wanted = requires_grad(tensor)
    if not isinstance(given, Parameter):
        given = Parameter(given, wanted)
    given.requires_grad_(wanted)
    module._parameters[name] = given


def unexpected_keys(module: Members, state_dict: Mapping[str, Any], prefix: str) -> list[str]:
    """The keys with a prefix that match no tensor and no child of the module."""
    own = own_state(module)
    unexpected = []
    for key in state_dict:
        if key.startswith(prefix):
            first, *rest = key[len(prefix) :].split(".", 1)
            if first not in (module._modules if rest else own):
                unexpected.append(key)
    return unexpected


def _load_below(
    part: Any, below: dict[str, Any], prefix: str, versions: Mapping[str, Any], assign: bool,
    result: LoadResult, errors: list[str],
) -> None:  # fmt: skip
    """Load a module and its submodules."""
    metadata = dict(versions.get(prefix[:-1], ()))
    if assign:
        metadata["assign_to_params_buffers"] = True
    part._load_from_state_dict(below, prefix, metadata, True, *result, errors)
    for name, child in part._modules.items():
        if child is not None:
            start = f"{prefix}{name}."
            given = {key: value for key, value in below.items() if key.startswith(start)}
            _load_below(child, given, start, versions, assign, result, errors)
    for hook in tuple(part._load_state_dict_post_hooks.values()):
        if hook(part, result) is not None:
            raise AssertionError(
                "Hooks registered with register_load_state_dict_post_hook are not expected to "
                "return new values, if incompatible_keys need to be modified, it should be "
                "done inplace."
            )


def load(module: Members, state_dict: Mapping[str, Any], strict: bool, assign: bool) -> LoadResult:
    """Load a module and all its submodules; see `Module.load_state_dict`."""
    if not hasattr(state_dict, "keys"):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict).__name__}.")
    versions = getattr(state_dict, "_metadata", {})
    errors: list[str] = []
    result = LoadResult([], [])
    _load_below(module, dict(state_dict), "", versions, assign, result, errors)
    if strict:
        for kind, keys in (("Unexpected", result[1]), ("Missing", result[0])):
            if keys:
                names = ", ".join(f'"{key}"' for key in keys)
                errors.insert(0, f"{kind} key(s) in state_dict: {names}. ")
    if errors:
        raise RuntimeError(
            "Error(s) in loading state_dict for {}:\n\t{}".format(
                type(module).__name__, "\n\t".join(errors)
            )
        )
    return result


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Remove a prefix from the names in a state dict that have it, in place.

    Args:
        state_dict: saved from a wrapper such as `DataParallel`.
        prefix: the prefix that the wrapper has added, such as "module.".
    """
    for names in (state_dict, getattr(state_dict, "_metadata", {})):
        for name in list(names):
            # In the metadata, the wrapped module's own name is the prefix without its dot.
            if name.startswith(prefix) or (names is not state_dict and name == prefix[:-1]):
                names[name[len(prefix) :]] = names.pop(name)
