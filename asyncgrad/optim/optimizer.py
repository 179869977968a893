"""The base class of optimisers: groups of parameters, their state, and the step.

A step changes the parameters' arrays in place and unrecorded; it counts as an in-place change. If a
graph that is not freed, or a snapshot, still needs a parameter's values, the parameter gets a new
array instead. The gradients of that graph are then those at the old values.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from asyncgrad.autograd.modes import enable_grad
from asyncgrad.core.array_holders import holders, rebind
from asyncgrad.core.recording import called_anew, unrepeatable
from asyncgrad.core.variable import Variable, bump_version
from asyncgrad.devices.fp_errors import call_without_fp_errors
from asyncgrad.errors import class_of
from asyncgrad.nn.parameter import clear_gradients
from asyncgrad.ops.tensors.sparse_rows import Rows
from asyncgrad.optim.hooks import (  # noqa: F401  two have this place in PyTorch
    HOOKS,
    Hooked,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from asyncgrad.optim.state import States, check_mapping, new_group, restored, saved
from asyncgrad.optim.turns import StepInThread, Turns
from asyncgrad.optim.updates import (
    Gradients,
    Group,
    Params,
    check_manner,
)
from asyncgrad.scheduler import check_awaited, offload
from asyncgrad.types import Array, Tensor

_T = TypeVar("_T")
#: `step_async` uses a thread if it expects a step to take more nanoseconds than this.
_WORTH_A_THREAD = 250_000
#: Roughly how often an update passes over its arrays.
_PASSES = 4


class Optimizer(Hooked, Turns):
    """Updates parameters from their gradients.

    Subclasses define `_update`, which updates one parameter, or `step`.

    Args:
        params: tensors, pairs of a name and a tensor, or dictionaries with `params` and options.
        defaults: the options of groups that do not set their own.

    Raises:
        ValueError: if `params` is empty, a tensor is no leaf, or a tensor is in two groups.
    """

    #: The options of groups that do not set their own.
    defaults: dict[str, Any]
    #: By parameter, entries by their names.
    state: States
    #: By group, its parameters (`params`) and options.
    param_groups: list[Group]
    #: Whether parameters may be complex.
    _takes_complex = True

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        one = isinstance(params, (Variable, dict))
        if one or not isinstance(params, Iterable):
            raise TypeError(
                f"params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {'one' if one else 'a'} {class_of(params)}. "
                f"{'Put it into a list' if one else 'Pass model.parameters()'}."
            )
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        vars(self).update({table: {} for table in HOOKS})
        #: During a step, the new arrays of parameters that are not updated in place.
        self._drafts: dict[Any, Any] = {}
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError(
                "optimizer got an empty parameter list. Parameters of layers in a plain list are "
                "not found: put the layers into a ModuleList."
            )
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _declare(self, given: Mapping[str, Any]) -> None:
        """Initialise with the local names of a subclass's `__init__`, its options among them."""
        options = {key: given[key] for key in given if key not in {"self", "params", "__class__"}}
        check_manner(options)
        Optimizer.__init__(self, given["params"], options)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters with its own options.

        Args:
            param_group: a dictionary with `params` and options. It becomes the group itself, and
                gets the options that it lacks.

        Raises:
            ValueError: if a tensor is no leaf or already in a group, or only some have names.
        """
        group = new_group(param_group, self.defaults, self.param_groups)
        self._check_parameters(group["params"])
        param_group.update(group)
        self.param_groups.append(param_group)

    def _check_parameters(self, parameters: list[Tensor]) -> None:
        """Raise ValueError if the optimiser can't update a parameter of a group."""

    def state_dict(self) -> dict[str, Any]:
        """State and options, with parameters replaced by numbers; tensors share memory.

        Raises:
            RuntimeError: while `step_async` changes the state in a thread.
        """
        self._check_state_is_whole("state_dict")
        for hook in tuple(self._state_pre_hooks.values()):
            hook(self)
        return self._through(self._state_post_hooks, saved(self.param_groups, self.state))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore state and options; tensors are copied.

        Args:
            state_dict: what `state_dict()` returned for an optimiser with the same groups.

        Raises:
            RuntimeError: while `step_async` changes the state in a thread.
            TypeError: if the state is no dictionary.
            ValueError: if it is not of such groups.
        """
        self._check_state_is_whole("load_state_dict")
        check_mapping(state_dict)
        state_dict = self._through(self._load_pre_hooks, state_dict.copy())
        state, groups = restored(state_dict, self.param_groups, self.defaults)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in tuple(self._load_post_hooks.values()):
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but hooks, which belong to the program and not to the state."""
        self._check_state_is_whole("__getstate__")
        return {
            **vars(self), **{table: {} for table in HOOKS},
            "_drafts": {}, "_stepping": None, "_in_thread": False, "_hooked": None,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take attributes that were copied or loaded; subclasses may add options to old groups."""
        vars(self).update(state)

    def _update(self, group: Group, parameter: Tensor, gradient: Array) -> None:
        """Update one parameter's values and its state from its gradient's array."""
        raise NotImplementedError(
            f"{type(self).__name__} defines neither _update() nor a step() of its own"
        )

    def _cost(self, group: Group, parameter: Tensor) -> float:
        """The expected nanoseconds of a parameter's update."""
        return float(parameter._metadata.cost * _PASSES)

    def _values(self, parameter: Tensor) -> Array:
        """The array that the current step changes."""
        values: Array = self._drafts.get(parameter, parameter._array)
        return values

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], _T]) -> _T: ...
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step in this thread, and return the closure's result.

        A parameter is changed in place, together with all tensors that share its memory. If a graph
        still needs its values, it gets new memory instead.

        On an event loop, a step blocks the loop; for large models, this takes longer than a slice
        of a pass. Use `await step_async()` there.

        Args:
            closure: computes the loss and its gradients anew before the step.

        Raises:
            PendingBackwardError: if this task has not awaited a pass that it started.
            RuntimeError: while another task's `step_async` is not complete.
        """
        self._check_awaited("step")
        if self._stepping is not None:
            self._refuse_to_meet("step", "Write `await optimizer.step_async()`.")
        loss = None if closure is None else self._evaluate(closure)
        self._updates()
        return loss

    @overload
    async def step_async(self, closure: None = None) -> None: ...
    @overload
    async def step_async(self, closure: Callable[[], Awaitable[_T]]) -> _T: ...
    @overload
    async def step_async(self, closure: Callable[[], _T]) -> _T: ...
    async def step_async(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step without blocking the event loop; a long step runs in a thread.

        Then the hooks before the step run in that thread, after the closure, and those after the
        step on the loop.

        The thread writes to new arrays, which replace the parameters' memory when the step is
        complete: other tasks see either no parameter updated or all of them. Gradients that they
        drop meanwhile are in the step, and options that they set are not. A cancellation takes
        effect after the step. Steps of several tasks are taken one after another. A `step` that a
        subclass defines is called on the loop instead, and awaited if it is a coroutine function.

        Args:
            closure: computes the loss and its gradients anew; may be a coroutine function.

        Raises:
            PendingBackwardError: if this task has not awaited a pass that it started.
            RuntimeError: if others have changed a parameter, or its gradient, while a thread
                updated it. It keeps their change, if any; all other parameters are updated.
        """
        self._check_awaited("step_async")
        unrepeatable("calls step_async()")
        loss = None if closure is None else await self._evaluate_async(closure)
        cost = sum(self._cost(group, p) for group in self.param_groups for p in group["params"])
        args = (self,) if closure is None else (self, closure)
        hooks = not self._hooks_called_by_step
        if cost < _WORTH_A_THREAD and self._stepping is None:
            if hooks:
                self._before(args, {})
            self._updates()
            if hooks:
                self._after(args, {})
            return loss
        beside = StepInThread()
        complete = False

        def update() -> None:
            nonlocal complete
            if hooks:
                with self._hooks_in_thread():
                    self._before(args, {})
            self._updates(beside)
            complete = True

        try:
            async with self._alone():
                # On the loop: the thread could begin while this loop copies the state.
                self._in_thread = True
                try:
                    await offload(update)
                finally:
                    # On the loop no other task sees part of a step. A cancelled one is complete.
                    left = beside.end()
                    self._in_thread = False
        finally:
            # After the step's turn, since a hook may take another one.
            if complete and hooks:
                self._after(args, {})
        if left:
            raise RuntimeError(
                f"{type(self).__name__}.step_async: others have changed {left} of "
                f"{len(beside.drafts)} parameters, or their gradients, while a thread updated "
                f"them. These parameters are not updated. Change them between two steps."
            )
        return loss

    def _check_awaited(self, method: str) -> None:
        """Raise if this task has not awaited a pass that it started."""
        check_awaited(f"{type(self).__name__}.{method}")

    def _evaluate(self, closure: Callable[[], Any]) -> Any:
        """Call the closure of `step`, and return its loss."""
        with enable_grad():
            loss = closure()
        if inspect.iscoroutine(loss):
            loss.close()
            raise TypeError(
                f"{type(self).__name__}.step: the closure is a coroutine function. Write `await "
                f"optimizer.step_async(closure)`."
            )
        self._check_awaited("step")
        return loss

    async def _evaluate_async(self, closure: Callable[[], Any]) -> Any:
        """Call the closure of `step_async`, and return its loss."""
        with enable_grad():
            loss = closure()
            if inspect.isawaitable(loss):
                loss = await loss
        self._check_awaited("step_async")
        return loss

    def _updates(self, beside: StepInThread | None = None) -> None:
        """Update parameters that have a gradient. If one fails, those before it are updated.

        `beside` gets new arrays, which are not put into the parameters: other tasks run meanwhile.
        """
        # All are read before the first update: a step that is refused changes nothing, and other
        # tasks may drop gradients and set options meanwhile.
        groups = self.param_groups if beside is None else beside.begin(self.param_groups)
        gradients = list(map(self._gradients, groups))
        made = self._drafts = {} if beside is None else beside.drafts
        if beside is not None:
            beside.note(gradients)
        try:
            call_without_fp_errors(self._update_groups, groups, gradients, beside is not None)
        finally:
            self._drafts = {}
            # States have changed, so that parameters must, even if a later one fails.
            if made and beside is None:
                rebind(made)

    def _update_groups(self, groups: list[Group], gradients: list[Gradients], beside: bool) -> None:
        """Update the parameters of all groups, each from its gradient."""
        for number, of_group in enumerate(gradients):
            self._update_group(number, groups[number], of_group, beside)

    def _gradients(self, group: Group) -> Gradients:
        """The gradients of a group's parameters; raises if a step can't use one."""
        found = [
            (parameter, gradient)
            for parameter in group["params"]
            if (meta := parameter._autograd) is not None and (gradient := meta.grad) is not None
        ]
        if Rows in [gradient._array.__class__ for _, gradient in found]:
            self._check_rows(group)
        if not self._takes_complex and any(p._metadata.is_complex for p, _ in found):
            raise RuntimeError(
                f"{type(self).__name__} does not support complex parameters. Give them to another "
                f"optimizer, as Adam."
            )
        return found

    def _check_rows(self, group: Group) -> None:
        """Raise if gradients of a group can't be row-sparse; not all optimisers support this."""
        raise RuntimeError(
            f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam, "
            f"SGD or Adagrad instead, or sparse=False"
        )

    def _update_group(self, number: int, group: Group, gradients: Gradients, beside: bool) -> None:
        """Update those parameters of a group that have a gradient; `beside`, in new arrays."""
        for parameter, gradient in gradients:
            change = parameter._metadata.device.launching(self._change)
            try:
                change(group, parameter, gradient._array, beside)
            except BaseException:
                self._drafts.pop(parameter, None)
                raise
            if parameter not in self._drafts:
                bump_version(parameter)

    def _change(
        self, group: Group, parameter: Tensor, gradient: Array | Rows, beside: bool
    ) -> None:
        """Update one parameter in place, or in a new array if its old values are still needed."""
        # A parameter that is listed twice is updated twice.
        if (beside or holders(parameter)) and parameter not in self._drafts:
            self._drafts[parameter] = parameter._array.copy(order="K")
        if isinstance(gradient, Rows):
            self._update_rows(group, parameter, gradient)
        else:
            self._update(group, parameter, gradient)

    def _update_rows(self, group: Group, parameter: Tensor, gradient: Rows) -> None:
        """Update a parameter from a row-sparse gradient; `_check_rows` lets such gradients pass."""
        raise NotImplementedError

    @called_anew
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zero.

        Raises:
            PendingBackwardError: if this task has not awaited a pass that it started.
        """
        self._check_awaited("zero_grad")
        for group in self.param_groups:
            clear_gradients(group["params"], set_to_none)

    def __repr__(self) -> str:
        unrepeatable("it shows an optimizer, whose options may change")
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines += ["", f"Parameter Group {number}"][not number :]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])
