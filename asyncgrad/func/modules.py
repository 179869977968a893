"""Modules as functions of their parameters: `functional_call` and `stack_module_state`."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from asyncgrad.nn.module import Module
from asyncgrad.nn.norm import _BatchNorm
from asyncgrad.nn.utils.parametrize import is_parametrized, type_before_parametrizations
from asyncgrad.ops.api.shape import stack
from asyncgrad.scheduler import waits
from asyncgrad.types import Tree

__all__ = ["functional_call", "replace_all_batch_norm_modules_", "stack_module_state"]


def functional_call(
    module: Module, parameter_and_buffer_dicts: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    args: Tree = None, kwargs: dict[str, Any] | None = None, *,
    tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """Call a module with other tensors in place of its parameters and buffers.

    Args:
        module: the module; its own tensors stay unchanged.
        parameter_and_buffer_dicts: tensors by the names of `named_parameters()` and
            `named_buffers()`, or several dictionaries of them.
            If the module assigns another value to such a name, a single dictionary gets it.
        args: the positional arguments; a value that is no tuple is the only argument.
        tie_weights: replace a shared parameter in every place where the module holds it.
        strict: raise unless exactly the module's parameters and buffers are given.

    Returns:
        What the module returns; a coroutine if its `forward` is a coroutine function.

    Raises:
        ValueError: if a name occurs in two dictionaries, or a shared parameter gets two values.
        RuntimeError: if `strict` finds names missing or unknown.
        AttributeError: for the name of a tensor in a submodule that there is not.

    Example:
        >>> layer = ag.nn.Linear(2, 1, bias=False)
        >>> weights = {"weight": ag.ones(1, 2)}
        >>> ag.func.functional_call(layer, weights, ag.tensor([1.0, 2.0])).tolist()
        [3.0]
    """
    given = _merged(parameter_and_buffer_dicts)
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    later = waits(module)
    if later:
        # Other tasks may call the module while this call waits, so it works on a copy of the tree.
        module = _copied(module, {})
    replaced = _replaced(_chosen(module, given, tie_weights, strict), given)
    call = partial(module, *arguments, **(kwargs or {}))
    if later:

        async def waiting() -> Any:
            with replaced:
                return await call()

        return waiting()
    with replaced:
        return call()


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Take the running statistics from all batch norms in a module; returns the module.

    Under `vmap` each example would need running values of its own. Afterwards the batch norms
    always use the statistics of the batch.

    Example:
        >>> model = ag.nn.Sequential(ag.nn.BatchNorm1d(2))
        >>> replace_all_batch_norm_modules_(model)[0].running_mean is None
        True
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
            module._buffers.update(dict.fromkeys(module._buffers))
    return root


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stack the parameters and buffers of modules of one class and mode, to `vmap` the ensemble.

    Returns:
        Stacked parameters and stacked buffers, by name. The parameters are leaves that require
        grad if those of the modules do.

    Raises:
        RuntimeError: for no modules, or if they differ in class, mode or `requires_grad`.
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if len(set(map(_classes, models))) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = [dict(model.named_parameters()) for model in models]
    buffers = [dict(model.named_buffers()) for model in models]
    return tuple(
        {name: _stacked(name, [state[name] for state in states]) for name in states[0]}
        for states in (parameters, buffers)
    )  # type: ignore[return-value]


def _classes(module: Any) -> tuple[Any, ...]:
    """A module's class, and those of its parametrizations: a copy has a class of its own."""
    parts = module.parametrizations.named_modules() if is_parametrized(module) else ()
    names = [(name, type(part)) for name, part in parts]
    return type_before_parametrizations(module), *names


def _stacked(name: str, tensors: list[Any]) -> Any:
    if len({tensor.requires_grad for tensor in tensors}) > 1:
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    return stack([x.detach() for x in tensors]).requires_grad_(tensors[0].requires_grad)


def _merged(given: object) -> Any:
    if isinstance(given, Mapping):
        return given
    if not isinstance(given, (list, tuple)):
        raise ValueError(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(given)}"
        )
    if not all(isinstance(part, Mapping) for part in given):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    repeated = [
        name for name, n in Counter(name for part in given for name in part).items() if n > 1
    ]
    if repeated:
        raise ValueError(
            f"{repeated} appeared in multiple dictionaries; behavior of functional call is "
            f"ambiguous"
        )
    return {name: value for part in given for name, value in part.items()}


def _places(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """By the full name of each parameter and buffer: the table that has it, and its name there."""
    return {
        f"{path}.{name}" if path else name: (table, name)
        for path, part in module.named_modules(remove_duplicate=False)
        for table in (part.__dict__["_parameters"], part.__dict__["_buffers"])
        for name, value in table.items()
        if value is not None
    }


def _chosen(
    module: Module, given: Mapping[str, Any], tie_weights: bool, strict: bool
) -> list[tuple[str, dict[str, Any], str, Any]]:
    """The full name, table, name in it and new value of each tensor to replace."""
    places = _places(module)
    held = {full: dict.__getitem__(table, name) for full, (table, name) in places.items()}
    tied: dict[int, set[str]] = {}
    for name, tensor in held.items():
        tied.setdefault(id(tensor), set()).add(name)
    complete = dict(given)
    if tie_weights:
        for name, value in given.items():
            for other in tied.get(id(held.get(name)), ()) if name in held else ():
                if other in given and given[other] is not value:
                    raise ValueError(
                        f"functional_call got multiple values for keys {sorted([name, other])}, "
                        f"which are tied. Consider using tie_weights=False"
                    )
                complete[other] = value
    unknown = [name for name in complete if name not in places]
    if strict:
        missing = [name for name in places if name not in complete]
        problems = [f"Unexpected key(s): {', '.join(unknown)}."] if unknown else []
        problems += [f"Missing key(s): {', '.join(missing)}."] if missing else []
        if problems:
            raise RuntimeError(
                f"Error(s) in reparametrizing for {type(module).__name__}:\n\t"
                + "\n\t".join(problems)
            )
    for name in unknown:
        module.get_submodule(name.rpartition(".")[0])
    return [(name, *places[name], value) for name, value in complete.items() if name in places]


@contextmanager
def _replaced(chosen: list[tuple[str, dict[str, Any], str, Any]], given: Any) -> Iterator[None]:
    """Replace tensors in the tables of modules within a block, then restore them.

    What the block has put in place of a tensor is put into `given`, too.
    """
    before = []
    try:
        for full, entries, name, value in chosen:
            # Not what a look-up returns: within a snapshot, that is not the parameter.
            before.append((full, value, entries, name, dict.__getitem__(entries, name)))
            entries[name] = value
        yield
    finally:
        for full, value, entries, name, own in reversed(before):
            if full in given and entries.get(name, value) is not value:
                given[full] = entries[name]
            entries[name] = own


def _copied(module: Module, known: dict[int, Any]) -> Any:
    """Copy a tree of modules; the copies have their own tables with the same tensors."""
    if id(module) not in known:
        twin = known[id(module)] = copy.copy(module)
        for table in ("_parameters", "_buffers", "_modules"):
            entries = module.__dict__[table]
            # The tables of a module that was in a snapshot look the parameters up there.
            twin.__dict__[table] = type(entries)(entries)
        for name, part in twin._modules.items():
            if part is not None:
                twin._modules[name] = _copied(part, known)
    return known[id(module)]
