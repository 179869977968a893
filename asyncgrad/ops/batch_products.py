"""How `vmap` computes products, convolutions and poolings; see `batch_rules`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncgrad.ops.batch_rules import Call, broadcast, by_example, full, in_front
from asyncgrad.ops.recorded import RECORDED as R


def _merged(x: Any) -> Any:
    """Merge the batch axis with the first axis of the examples."""
    return R.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))


def _parted(x: Any, size: int) -> Any:
    return R.reshape(x, (size, x.shape[0] // size, *x.shape[1:]))


# -- products -------------------------------------------------------------------------------------


def contract(call: Call, x: Any, y: Any, x_labels: Any, y_labels: Any, out_labels: Any) -> Any:
    # An outer level may have added its own label already: the count makes this one unique.
    batch = f"batch {len({*x_labels, *y_labels})}"
    x_labels, y_labels = (
        (batch, *own) if flag else own
        for own, flag in zip((x_labels, y_labels), call.flags, strict=True)
    )
    return R.contract(x, y, x_labels, y_labels, (batch, *out_labels))


def _product(x_labels: str, y_labels: str, out_labels: str) -> Callable[[Call, Any, Any], Any]:
    """The rule of a product that is a contraction with these labels."""
    labels = tuple(x_labels), tuple(y_labels), tuple(out_labels)
    return lambda call, x, y: contract(call, x, y, *labels)


mm = _product("ik", "kj", "ij")
mv = _product("ik", "k", "i")
dot = _product("k", "k", "")
outer = _product("i", "j", "ij")


def linear(call: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    flags = call.flags[:2]
    if flags[1]:
        rows = tuple(range(len(x.shape) - 1 - flags[0]))
        labels = (*rows, "k"), ("j", "k"), (*rows, "j")
        out = contract(call._replace(flags=flags), x, weight, *labels)
    else:
        # The rows of a batch are more rows.
        out = R.linear(x, weight)
    if bias is None:
        return out
    return broadcast(Call("add", call.size, (any(flags), call.flags[2])), out, bias)


def addmm(call: Call, bias: Any, x: Any, y: Any, beta: Any, alpha: Any) -> Any:
    flags = call.flags[1:]
    product = (
        mm(call._replace(flags=flags), x, y) if any(flags) else in_front(R.mm(x, y), call.size)
    )
    if alpha != 1:
        product = R.mul_scalar(product, alpha)
    if beta == 0:
        return product
    if beta != 1:
        bias = R.mul_scalar(bias, beta)
    return broadcast(Call("add", call.size, (True, call.flags[0])), product, bias)


# -- images ---------------------------------------------------------------------------------------


def _channels_merged(x: Any) -> Any:
    """Merge the batch axis with the channels of the examples."""
    wide = R.permute(x, (1, 0, *range(2, len(x.shape))))
    return R.reshape(wide, (x.shape[1], x.shape[0] * x.shape[2], *x.shape[3:]))


def _channels_parted(x: Any, size: int) -> Any:
    """Split off the batch axis again."""
    count, channels, *image = x.shape
    out = R.reshape(x, (count, size, channels // size, *image))
    return R.permute(out, (1, 0, *range(2, len(out.shape))))


def convolution(call: Call, x: Any, weight: Any, *rest: Any) -> Any:
    *biases, geometry = rest
    flags = call.flags
    if flags[1]:
        x, weight = full(Call("", call.size, flags[:2]), (x, weight))
        # Separate groups for each example.
        grouped = geometry._replace(groups=call.size * geometry.groups)
        out = _channels_parted(
            R.convolution(_channels_merged(x), _merged(weight), grouped), call.size
        )
    elif flags[0]:
        out = _parted(R.convolution(_merged(x), weight, geometry), call.size)
    else:
        out = in_front(R.convolution(x, weight, geometry), call.size)
    for bias in biases:
        flag = flags[2]
        ones = (1,) * (len(out.shape) - 3)
        lead = (call.size, 1) if flag else ()
        out = R.add(out, R.reshape(bias, (*lead, bias.shape[-1], *ones)))
    return out


def convolution_input(call: Call, y: Any, weight: Any, shape: Any, geometry: Any) -> Any:
    if call.flags[1]:
        return by_example(call, y, weight, shape, geometry)
    whole = (call.size * shape[0], *shape[1:])
    return _parted(R.convolution_input(_merged(y), weight, whole, geometry), call.size)


def images(call: Call, *arguments: Any) -> Any:
    count = len(call.flags)
    inputs = [_merged(x) for x in full(call, arguments[:count])]
    return _parted(getattr(R, call.name)(*inputs, *arguments[count:]), call.size)


def batch_norm(call: Call, x: Any, weight: Any, bias: Any, eps: float, kept: Any) -> Any:
    """Merge the examples' channels into one axis: they are normalised independently."""
    x, weight, bias = full(call, (x, weight, bias))
    out = R.batch_norm(_channels_merged(x), _merged(weight), _merged(bias), eps, [])
    return _channels_parted(out, call.size)
