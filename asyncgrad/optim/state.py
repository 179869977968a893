"""The state of an optimiser and its options: saved, loaded and copied."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from asyncgrad.optim.hooks import HOOKS, Hooked
from asyncgrad.optim.turns import Turns
from asyncgrad.optim.updates import copied_beside


class Stateful(Hooked, Turns):
    """The state and the options of an optimiser; a base class of `Optimizer` only."""

    #: The options of groups that do not set their own.
    defaults: dict[str, Any]
    #: By parameter, entries by their names.
    state: defaultdict[Any, dict[str, Any]]
    #: By group, its parameters (`params`) and options.
    param_groups: list[dict[str, Any]]

    def state_dict(self) -> dict[str, Any]:
        """State and options, with parameters replaced by numbers; tensors share memory.

        Raises:
            RuntimeError: while `step_async` changes the state in a thread.
        """
        self._check_state_is_whole("state_dict")
        for hook in tuple(self._state_pre_hooks.values()):
            hook(self)
        numbers: dict[int, int] = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                numbers.setdefault(id(parameter), len(numbers))
        state_dict = {
            "state": {numbers.get(id(key), key): dict(value) for key, value in self.state.items()},
            "param_groups": [
                {
                    **{key: value for key, value in group.items() if key != "params"},
                    "params": [numbers[id(parameter)] for parameter in group["params"]],
                }
                for group in self.param_groups
            ],
        }
        return self._through(self._state_post_hooks, state_dict)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore state and options; tensors are copied.

        Args:
            state_dict: what `state_dict()` returned for an optimiser with the same groups.

        Raises:
            RuntimeError: while `step_async` changes the state in a thread.
        """
        self._check_state_is_whole("load_state_dict")
        state_dict = self._through(self._load_pre_hooks, state_dict.copy())
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError(
                f"loaded state dict has a different number of parameter groups: {len(groups)} "
                f"instead of {len(self.param_groups)}"
            )
        for own, given in zip(self.param_groups, groups, strict=True):
            if len(own["params"]) != len(given["params"]):
                raise ValueError(
                    f"loaded state dict contains a parameter group that doesn't match the size of "
                    f"optimizer's group: {len(given['params'])} instead of {len(own['params'])}"
                )
        parameters = {
            number: parameter
            for own, given in zip(self.param_groups, groups, strict=True)
            for number, parameter in zip(given["params"], own["params"], strict=True)
        }
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for number, values in state_dict["state"].items():
            if number in parameters:
                parameter = parameters[number]
                state[parameter] = copied_beside("", values, parameter)
            else:
                state[number] = values
        groups = [
            self.defaults
            | {key: own[key] for key in own if key == "param_names"}
            | {**given, "params": own["params"]}
            for own, given in zip(self.param_groups, groups, strict=True)
        ]
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in tuple(self._load_post_hooks.values()):
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but hooks, which belong to the program and not to the state."""
        anew: dict[str, Any] = {"_drafts": {}, "_stepping": None, "_in_thread": False}
        return {**vars(self), **{table: {} for table in HOOKS}, **anew}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take attributes that were copied or loaded; subclasses may add options to old groups."""
        vars(self).update(state)
