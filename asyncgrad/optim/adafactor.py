"""The Adafactor optimiser."""

from __future__ import annotations

import numpy as np

from asyncgrad.core.variable import wrap
from asyncgrad.ops.bfloat16 import floating_info
from asyncgrad.ops.namespace import metadata_of
from asyncgrad.ops.widening import widened
from asyncgrad.optim import updates
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.types import Array, Tensor


class Adafactor(Optimizer):
    """Adapts steps to each element, with only row and column means of a matrix's squared gradients.

    Args:
        lr: roughly the greatest step relative to the parameter's size; also scales weight decay.
        beta2_decay: new squares get the number of steps to this power as weight in the means.
        eps: a lower bound of the roots of mean squares (None: the dtype's machine epsilon), and a
            lower bound of the parameter's size.
        d: updates with a greater root mean square are scaled down to it.
        weight_decay: the parameter shrinks by this fraction times `lr`.

    The other arguments are those of `Adam`. A step raises RuntimeError for complex parameters.
    """

    _takes_complex = False

    def __init__(
        self, params: updates.Params, lr: updates.Rate = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0,
        *, foreach: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        updates.check_bound("Learning rate", lr)
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None:
            updates.check_bound("epsilon1", eps[0])
        updates.check_bound("epsilon2", eps[1])
        updates.check_bound("Clipping threshold d", d, least=1)
        updates.check_bound("weight_decay", weight_decay)
        self._declare(locals())

    def _update(self, group: updates.Group, parameter: Tensor, gradient: Array) -> None:
        state = self.state[parameter]
        factored = gradient.ndim > 1
        if not state:
            state["step"] = updates.host_number(0.0)
            shape = gradient.shape
            sizes = {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, *shape[-1:])}
            for name, size in (sizes if factored else {"variance": shape}).items():
                array = parameter._metadata.F.xp.zeros(size, gradient.dtype)
                state[name] = wrap(array, metadata_of(array, parameter._metadata.device))
        step = updates.next_number(state)
        # Sums of half precision would overflow or stand still.
        p, g = self._values(parameter), widened(gradient)
        lr, forgotten = float(group["lr"]), step ** group["beta2_decay"]
        least, least_size = group["eps"]
        least = float(floating_info(p.dtype).eps) if least is None else least
        length = np.maximum(_size(widened(p)), least_size) * min(lr, step**-0.5)
        if group["weight_decay"]:
            p *= 1 - lr * group["weight_decay"]
        squares = g * g
        if factored:
            rows, columns = state["row_var"]._array, state["col_var"]._array
            rows += forgotten * (squares.mean(axis=-1, keepdims=True) - rows)
            columns += forgotten * (squares.mean(axis=-2, keepdims=True) - columns)
            rows, columns = widened(rows), widened(columns)
            squares = rows @ columns
            squares /= np.maximum(rows.mean(axis=-2, keepdims=True), least)
        else:
            mean = state["variance"]._array
            mean += forgotten * (squares - mean)
            squares = mean
        change = g / np.sqrt(np.maximum(squares, least * least))
        length = length / np.maximum(_size(change) / group["d"], 1.0)
        p += change * (length if group["maximize"] else -length)
        updates.steps_of(state).fill(step)


def _size(array: Array) -> Array:
    """The root of the mean square, on the array's device: nobody waits for it."""
    size: Array = np.sqrt((array * array).sum() / max(1, array.size))
    return size
