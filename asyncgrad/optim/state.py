"""Groups of parameters, and their states, as data: made, saved and restored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeAlias

from asyncgrad.autograd.modes import no_grad
from asyncgrad.core.frames import warn
from asyncgrad.core.variable import Variable
from asyncgrad.devices import CPU
from asyncgrad.errors import class_of
from asyncgrad.ops.api.conversion import to
from asyncgrad.ops.promotion import category
from asyncgrad.optim.updates import Group, State
from asyncgrad.types import Tensor

#: By parameter, or by a number that a state dict has and that is no parameter's, its state.
States: TypeAlias = "defaultdict[Any, State]"


def new_group(given: Group, defaults: Mapping[str, Any], others: list[Group]) -> Group:
    """What the user has given as a group of parameters, beside others, with all its options."""
    if not isinstance(given, dict):
        raise TypeError(f"param_group must be a dict, but got {type(given).__name__}")
    params: Any = given["params"]
    if isinstance(params, (set, frozenset)):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the "
            "ordering of tensors in sets will change between runs. Please use a list instead."
        )
    members: list[Any] = [params] if isinstance(params, Variable) else list(params)
    group = {**defaults, **given}
    named = sum(isinstance(member, tuple) for member in members)
    if named:
        if named < len(members):
            raise ValueError(
                "all optimizer params should be with/without names. Some param names are missing"
            )
        group["param_names"] = [name for name, _ in members]
        members = [parameter for _, parameter in members]
    for parameter in members:
        if not isinstance(parameter, Variable):
            raise TypeError(
                f"optimizer can only optimize Tensors, but one of the params is "
                f"{class_of(parameter)}"
            )
        if parameter._edge is not None and not defaults.get("differentiable"):
            raise ValueError(
                "can't optimize a non-leaf Tensor. Give the leaf that it is computed from, or a "
                "leaf made of it by x.detach().requires_grad_()."
            )
    if len(set(map(id, members))) < len(members):
        warn(
            "optimizer contains a parameter group with duplicate parameters; in future, this will "
            "cause an error"
        )
    present = {id(p) for other in others for p in other["params"]}
    if any(id(parameter) in present for parameter in members):
        raise ValueError(
            "some parameters appear in more than one parameter group. Keep each in one of them."
        )
    names = "param_names" in group
    if others and names != ("param_names" in others[0]):
        raise ValueError(
            f"all optimizer param groups should be with/without names. cannot add param group "
            f"{'with' if names else 'without'} names to the optimizer"
        )
    return {**group, "params": members}


def saved(groups: list[Group], states: Mapping[Any, State]) -> dict[str, Any]:
    """States and options, with parameters replaced by numbers; tensors share memory."""
    numbers: dict[int, int] = {}
    for group in groups:
        for parameter in group["params"]:
            numbers.setdefault(id(parameter), len(numbers))
    return {
        "state": {numbers.get(id(key), key): dict(value) for key, value in states.items()},
        "param_groups": [
            {
                **{key: value for key, value in group.items() if key != "params"},
                "params": [numbers[id(parameter)] for parameter in group["params"]],
            }
            for group in groups
        ],
    }


def check_mapping(state_dict: object) -> None:
    """Raise unless what `load_state_dict` was given is a dictionary."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"load_state_dict: expected the dictionary that state_dict() returns, not "
            f"{class_of(state_dict)}"
        )


def restored(
    state_dict: Mapping[str, Any], groups: list[Group], defaults: Mapping[str, Any]
) -> tuple[States, list[Group]]:
    """The states and groups in what `saved` has returned; tensors are copied.

    The groups get the parameters of the present ones, and options that older state dicts lack.
    """
    if not {"state", "param_groups"} <= state_dict.keys():
        raise ValueError(
            f"load_state_dict: the state of an optimizer has 'state' and 'param_groups', this has "
            f"{sorted(map(str, state_dict))}"
        )
    given = state_dict["param_groups"]
    if len(given) != len(groups):
        raise ValueError(
            f"loaded state dict has a different number of parameter groups: {len(given)} instead "
            f"of {len(groups)}"
        )
    parameters: dict[Any, Any] = {}
    found = []
    for own, its in zip(groups, given, strict=True):
        if len(own["params"]) != len(its["params"]):
            raise ValueError(
                f"loaded state dict contains a parameter group that doesn't match the size of "
                f"optimizer's group: {len(its['params'])} instead of {len(own['params'])}"
            )
        parameters.update(zip(its["params"], own["params"], strict=True))
        names = {key: own[key] for key in own if key == "param_names"}
        found.append({**defaults, **names, **its, "params": own["params"]})
    states: States = defaultdict(dict)
    for number, values in state_dict["state"].items():
        if number in parameters:
            parameter = parameters[number]
            states[parameter] = _copied_beside("", values, parameter)
        else:
            states[number] = values
    return states, found


def _copied_beside(key: str, value: Any, parameter: Tensor) -> Any:
    """Copy a loaded state value to the parameter's device, and to its dtype if that is real.

    A complex parameter has both real and complex state, so that dtypes are kept. The step count
    keeps its dtype and stays on the host, where reading it waits for no device.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(_copied_beside(key, part, parameter) for part in value)
    if isinstance(value, dict):
        return {name: _copied_beside(name, part, parameter) for name, part in value.items()}
    if not isinstance(value, Variable):
        return value
    place, dtype = parameter._metadata.device, parameter._metadata.dtype
    if key == "step":
        place = CPU
    if key == "step" or category(dtype) != 2:
        dtype = value._metadata.dtype
    with no_grad():
        return to(value, place, dtype, copy=True)  # type: ignore[call-overload]
