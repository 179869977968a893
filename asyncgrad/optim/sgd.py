"""The SGD optimiser: stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncgrad.core.variable import wrap
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.updates import check_manner, check_option, descending, in_tiles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncgrad.ops.tensors.sparse_rows import Rows


class SGD(Optimizer):
    """Stochastic gradient descent, optionally with momentum.

    Args:
        params: parameters or groups of them.
        lr: the learning rate.
        momentum: the decay rate of the momentum.
        dampening: the fraction of the gradient that is kept out of the momentum.
        weight_decay: this multiple of the parameter is added to the gradient.
        nesterov: look ahead along the momentum.
        maximize: step along the gradient instead of against it.
        foreach: accepted for PyTorch's programs, without effect.
        differentiable: not supported.
        fused: accepted for PyTorch's programs; updates are always fused.

    Raises:
        ValueError: if an option is out of its range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_option("learning rate", lr)
        check_option("momentum value", momentum)
        check_option("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        check_manner("SGD", differentiable, foreach, fused)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any], parameter: Any, gradient: Any) -> None:
        momentum = group["momentum"]
        buffer = None
        fresh = False
        if momentum:
            state = self.state[parameter]
            kept = state.get("momentum_buffer")
            fresh = kept is None
            if kept is None:
                array = parameter._metadata.F.xp.empty_like(parameter._array)
                kept = state["momentum_buffer"] = wrap(array, parameter._metadata)
            buffer = kept._array
        in_tiles(
            _descend,
            (self._values(parameter), gradient, buffer),
            float(group["lr"]),
            momentum,
            group["dampening"],
            group["weight_decay"],
            group["nesterov"],
            group["maximize"],
            fresh,
        )

    def _update_rows(self, group: dict[str, Any], parameter: Any, gradient: Rows) -> None:
        if group["weight_decay"]:
            raise RuntimeError(
                "SGD: weight_decay is not compatible with sparse gradients: it changes every row. "
                "Set it to 0 or use sparse=False."
            )
        if group["momentum"]:
            # The momentum also changes rows that this gradient lacks, so a dense update is needed.
            self._update(group, parameter, gradient.dense())
            return
        rows = gradient.coalesce()
        step = rows.values * self._values(parameter).dtype.type(float(group["lr"]))
        if group["maximize"]:
            self._values(parameter)[rows.indices] += step
        else:
            self._values(parameter)[rows.indices] -= step


def _descend(
    p: Any,
    g: Any,
    buffer: Any,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    fresh: bool,
) -> None:
    g = descending(g, p, weight_decay, maximize)
    if buffer is not None:
        if fresh:
            buffer[...] = g
        else:
            buffer *= momentum
            buffer += g if dampening == 0 else (1 - dampening) * g
        g = g + momentum * buffer if nesterov else buffer
    p -= lr * g
