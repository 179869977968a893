"""How `vmap` computes each op of the table: where its rule puts the batch axis.

A rule `rule(call, inputs..., attributes...)` gets the tensors that hold the batches. It computes
with the recorded functions of the table. `call.flags` says which inputs have the batch as their
first axis. An op without a rule is computed one example at a time.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_ALL = slice(None)


class Call(NamedTuple):
    """The op that a rule computes, and which of its inputs are batched."""

    name: str
    #: The length of the batch.
    size: int
    #: For each input, whether its first axis is the batch.
    flags: tuple[bool, ...]


# -- small parts ----------------------------------------------------------------------------------


def in_front(x: Any, size: int) -> Any:
    """An unbatched tensor, repeated along a new first axis of the batch's length."""
    shape = x.shape
    return R.expand(R.reshape(x, (1, *shape)), (size, *shape))


def _full(call: Call, values: tuple[Any, ...]) -> list[Any]:
    """All inputs with the batch as their first axis; unbatched ones are repeated."""
    return [
        x if flag else in_front(x, call.size) for x, flag in zip(values, call.flags, strict=True)
    ]


def _aligned(call: Call, values: tuple[Any, ...]) -> list[Any]:
    """Pad examples with axes of length 1, so that they broadcast against one another."""
    ndims = [len(x.shape) - flag for x, flag in zip(values, call.flags, strict=True)]
    ndim = max(ndims)
    return [
        R.reshape(x, (call.size, *(1,) * (ndim - n), *x.shape[1:])) if flag and n < ndim else x
        for x, n, flag in zip(values, ndims, call.flags, strict=True)
    ]


def _shifted(dims: Any) -> tuple[int, ...]:
    return tuple(dim + 1 for dim in dims)


def _merged(x: Any) -> Any:
    """Merge the batch axis with the first axis of the examples."""
    return R.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))


def _parted(x: Any, size: int) -> Any:
    return R.reshape(x, (size, x.shape[0] // size, *x.shape[1:]))


def by_example(call: Call, *arguments: Any) -> Any:
    """Compute an op one example at a time and stack the results."""
    function = getattr(R, call.name)
    count = len(call.flags)
    # An op appends what it saves to a list attribute, so each example gets a list of its own.
    attributes = arguments[count:]
    parts = []
    for i in range(call.size):
        inputs = [
            R.getitem(x, (i, Ellipsis)) if flag else x
            for x, flag in zip(arguments[:count], call.flags, strict=True)
        ]
        out = function(*inputs, *[[] if isinstance(a, list) else a for a in attributes])
        parts.append(R.reshape(out, (1, *out.shape)))
    return R.cat(parts, 0)


# -- elementwise ----------------------------------------------------------------------------------


def _same(call: Call, x: Any, *attributes: Any) -> Any:
    return getattr(R, call.name)(x, *attributes)


def _broadcast(call: Call, *arguments: Any) -> Any:
    count = len(call.flags)
    return getattr(R, call.name)(*_aligned(call, arguments[:count]), *arguments[count:])


def _alike(call: Call, *arguments: Any) -> Any:
    count = len(call.flags)
    # The condition may have fewer axes than the other inputs: all are aligned, batched or not.
    whole = Call(call.name, call.size, (True,) * count)
    inputs = _aligned(whole, tuple(_full(call, arguments[:count])))
    return getattr(R, call.name)(*inputs, *arguments[count:])


# -- axes -----------------------------------------------------------------------------------------


def _reduction(call: Call, x: Any, *attributes: Any) -> Any:
    """Shift the `dims` attribute, which is the last but one, by the batch axis."""
    *before, dims, last = attributes
    if call.name in {"var", "std"}:
        dims, correction, keepdim = attributes
        return getattr(R, call.name)(x, _shifted(dims), correction, keepdim)
    return getattr(R, call.name)(x, *before, _shifted(dims), last)


def _extremum(call: Call, x: Any) -> Any:
    return getattr(R, "a" + call.name)(x, tuple(range(1, len(x.shape))), False)


def _sum_to(call: Call, x: Any, shape: tuple[int, ...]) -> Any:
    lead = len(x.shape) - 1 - len(shape)
    narrow = [i + lead + 1 for i, n in enumerate(shape) if n == 1 != x.shape[i + lead + 1]]
    dims = (*range(1, lead + 1), *narrow)
    out = R.sum(x, dims, True) if dims else x
    return R.reshape(out, (call.size, *shape))


def _expand(call: Call, x: Any, shape: tuple[int, ...]) -> Any:
    inner = x.shape[1:]
    lead = (1,) * (len(shape) - len(inner))
    return R.expand(R.reshape(x, (call.size, *lead, *inner)), (call.size, *shape))


def _line(call: Call, x: Any, dim: int) -> Any:
    """Apply an op along one axis; an example without axes is treated as one of one element."""
    if len(x.shape) == 1:
        return R.reshape(getattr(R, call.name)(R.reshape(x, (call.size, 1)), 1), x.shape)
    return getattr(R, call.name)(x, dim + 1)


def _recurrence(call: Call, x: Any, y: Any, dim: int) -> Any:
    return R.recurrence(*_full(call, (x, y)), dim + 1)


def _repeat(call: Call, x: Any, repeats: tuple[int, ...]) -> Any:
    lead = (1,) * (len(repeats) - len(x.shape) + 1)
    return R.repeat(R.reshape(x, (call.size, *lead, *x.shape[1:])), (1, *repeats))


def _roll(call: Call, x: Any, shifts: Any, dims: Any) -> Any:
    return R.roll(x, shifts, _shifted(dims))


# -- indices --------------------------------------------------------------------------------------


def _apart(index: tuple[Any, ...]) -> int:
    """How many picked axes come first because an index's arrays are not adjacent, or 0."""
    places = [
        i for i, part in enumerate(index) if not (isinstance(part, slice) or part is Ellipsis)
    ]
    if not places or places[-1] - places[0] == len(places) - 1:
        return 0
    arrays = [index[i] for i in places if not isinstance(index[i], int)]
    return max([1 if x.dtype.kind == "b" else x.ndim for x in arrays], default=0)


def _to_back(x: Any, first: int) -> Any:
    """Move the batch behind the picked axes, where an index with non-adjacent arrays expects it."""
    return R.permute(x, (*range(1, first + 1), 0, *range(first + 1, len(x.shape))))


def _index(call: Call, x: Any, index: tuple[Any, ...]) -> Any:
    out = getattr(R, call.name)(x, (_ALL, *index))
    first = _apart(index)
    if call.name == "index" and first:
        out = R.permute(out, (first, *range(first), *range(first + 1, len(out.shape))))
    return out


def _from_index(call: Call, x: Any, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    """Zeros with values put at an index."""
    first = _apart(index) if call.name != "zeros_with" else 0
    if first:
        x = _to_back(x, first)
    return getattr(R, call.name)(x, (call.size, *shape), (_ALL, *index))


def _put(call: Call, x: Any, value: Any, index: tuple[Any, ...], *attributes: Any) -> Any:
    x, value = _full(call, (x, value))
    first = _apart(index)
    if first:
        value = _to_back(value, first)
    return getattr(R, call.name)(x, value, (_ALL, *index), *attributes)


def _as_strided(
    call: Call, x: Any, size: Any, stride: Any, storage_offset: Any, layout: Any
) -> Any:
    step, *steps = x.stride()
    if tuple(steps) != layout[0]:
        return by_example(call, x, size, stride, storage_offset, layout)
    layout = ((step, *steps), layout[1])
    return R.as_strided(x, (call.size, *size), (step, *stride), storage_offset, layout)


# -- products -------------------------------------------------------------------------------------


def _mm(call: Call, x: Any, y: Any) -> Any:
    size = call.size
    if call.flags == (True, True):
        return R.bmm(x, y)
    if call.flags[0]:
        return _parted(R.mm(_merged(x), y), size)
    k, n = y.shape[1:]
    wide = R.reshape(R.permute(y, (1, 0, 2)), (k, size * n))
    return R.permute(R.reshape(R.mm(x, wide), (x.shape[0], size, n)), (1, 0, 2))


def _mv(call: Call, x: Any, y: Any) -> Any:
    out = _mm(call, x, R.reshape(y, (*y.shape, 1)))
    return R.reshape(out, out.shape[:-1])


def _dot(call: Call, x: Any, y: Any) -> Any:
    product = _broadcast(call._replace(name="mul"), x, y)
    return R.sum(product, (1,), False)


def _outer(call: Call, x: Any, y: Any) -> Any:
    return _broadcast(call._replace(name="mul"), R.reshape(x, (*x.shape, 1)), _before_last(y))


def _before_last(y: Any) -> Any:
    """Insert an axis of length 1 before the last."""
    return R.reshape(y, (*y.shape[:-1], 1, y.shape[-1]))


def _bmm(call: Call, x: Any, y: Any) -> Any:
    x, y = _full(call, (x, y))
    return _parted(R.bmm(_merged(x), _merged(y)), call.size)


def _distances(call: Call, x: Any, y: Any) -> Any:
    return R.euclidean_distances(*_full(call, (x, y)))


def _linear(call: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    flags = call.flags
    if not flags[1]:
        out = R.linear(x, weight) if flags[0] else None
        if out is None:
            # Only the bias is batched.
            out = in_front(R.linear(x, weight), call.size)
    else:
        shape = x.shape[flags[0] :]
        inner = shape[-1]
        rows = (prod(shape[:-1]), inner)
        x = R.reshape(x, (call.size, *rows) if flags[0] else rows)
        turned = R.permute(weight, (0, 2, 1))
        out = _mm(Call("mm", call.size, (flags[0], True)), x, turned)
        out = R.reshape(out, (call.size, *shape[:-1], weight.shape[1]))
    if bias is None:
        return out
    return _broadcast(Call("add", call.size, (True, flags[2])), out, bias)


def _addmm(call: Call, bias: Any, x: Any, y: Any, beta: Any, alpha: Any) -> Any:
    product = (
        _mm(Call("mm", call.size, call.flags[1:]), x, y)
        if any(call.flags[1:])
        else in_front(R.mm(x, y), call.size)
    )
    if alpha != 1:
        product = R.mul_scalar(product, alpha)
    if beta == 0:
        return product
    if beta != 1:
        bias = R.mul_scalar(bias, beta)
    return _broadcast(Call("add", call.size, (True, call.flags[0])), product, bias)


def _contract(call: Call, x: Any, y: Any, x_labels: Any, y_labels: Any, out_labels: Any) -> Any:
    # An outer level may have added its own label already: the count makes this one unique.
    batch = f"batch {len({*x_labels, *y_labels})}"
    x_labels, y_labels = (
        (batch, *own) if flag else own
        for own, flag in zip((x_labels, y_labels), call.flags, strict=True)
    )
    return R.contract(x, y, x_labels, y_labels, (batch, *out_labels))


# -- images ---------------------------------------------------------------------------------------


def _convolution(call: Call, x: Any, weight: Any, *rest: Any) -> Any:
    *biases, geometry = rest
    flags = call.flags
    if flags[1]:
        x, weight = _full(Call("", call.size, flags[:2]), (x, weight))
        size, count, channels, *image = x.shape
        # Merge the examples' channels into one axis, with separate groups for each example.
        wide = R.permute(x, (1, 0, *range(2, len(x.shape))))
        wide = R.reshape(wide, (count, size * channels, *image))
        grouped = geometry._replace(groups=size * geometry.groups)
        out = R.convolution(wide, _merged(weight), grouped)
        out = R.reshape(out, (count, size, weight.shape[1], *out.shape[2:]))
        out = R.permute(out, (1, 0, *range(2, len(out.shape))))
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


def _convolution_input(call: Call, y: Any, weight: Any, shape: Any, geometry: Any) -> Any:
    if call.flags[1]:
        return by_example(call, y, weight, shape, geometry)
    whole = (call.size * shape[0], *shape[1:])
    return _parted(R.convolution_input(_merged(y), weight, whole, geometry), call.size)


def _images(call: Call, *arguments: Any) -> Any:
    count = len(call.flags)
    inputs = [_merged(x) for x in _full(call, arguments[:count])]
    return _parted(getattr(R, call.name)(*inputs, *arguments[count:]), call.size)


def _batch_norm(call: Call, x: Any, weight: Any, bias: Any, eps: float, kept: Any) -> Any:
    """Merge the examples' channels into one axis: they are normalised independently."""
    x, weight, bias = _full(call, (x, weight, bias))
    size, count, channels, *image = x.shape
    order = (1, 0, *range(2, len(x.shape)))
    wide = R.reshape(R.permute(x, order), (count, size * channels, *image))
    out = R.batch_norm(wide, _merged(weight), _merged(bias), eps, [])
    return R.permute(R.reshape(out, (count, size, channels, *image)), order)


def _attention(call: Call, *arguments: Any) -> Any:
    q, k, v = _full(call, arguments[:3])
    mask, causal, scale, _ = arguments[3:]
    return R.attention(q, k, v, mask, causal, scale, [])


# -- losses and norms -----------------------------------------------------------------------------


def _loss(call: Call, x: Any, y: Any, parameter: Any, scale: Any, each: bool) -> Any:
    x, y = _full(call, (x, y))
    out = getattr(R, call.name)(x, y, parameter, scale, True)
    if each:
        return out
    return R.mul_scalar(R.sum(out, tuple(range(1, len(out.shape))), False), scale)


def _log_sums(call: Call, x: Any, dim: int) -> Any:
    return R.log_sums(x, dim + 1)


def _cosine_similarity(call: Call, x: Any, y: Any, dim: int, eps: float) -> Any:
    x, y = _full(call, (x, y))
    return R.cosine_similarity(x, y, dim + 1, eps)


def _over_last(call: Call, x: Any, count: int, eps: float, kept: Any) -> Any:
    return getattr(R, call.name)(x, count, eps, [])


def _layer_norm(call: Call, x: Any, *arguments: Any) -> Any:
    *affine, count, eps, _ = arguments
    plain = "normalise" if call.name == "layer_norm" else "root_mean_square"
    if not any(call.flags[1:]):
        return getattr(R, call.name)(x, *affine, count, eps, [])
    out = getattr(R, plain)(x if call.flags[0] else in_front(x, call.size), count, eps, [])
    for name, part, flag in zip(("mul", "add"), affine, call.flags[1:], strict=False):
        out = _broadcast(Call(name, call.size, (True, flag)), out, part)
    return out


_SAME = (
    "mul_scalar", "div_scalar", "add_scalar", "sub_scalar", "rsub_scalar",
    "pow_scalar", "rpow_scalar", "fmod_scalar", "remainder_scalar", "conj", "real", "neg", "abs",
    "sgn", "reciprocal", "square", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2",
    "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "sigmoid", "erf", "relu", "sign", "floor", "ceil", "trunc", "round", "round_decimals", "clamp",
    "zero", "isnan", "isinf", "isfinite", "logical_not", "bitwise_not", "clone", "to",
    "tril", "triu", "leaky_relu", "leaky_slope", "elu",
    "elu_slope", "silu", "hardswish", "logit", "softplus", "softplus_slope", "logsigmoid",
    "normal_cdf", "normal_pdf", "gelu", "gelu_tanh", "dropout", "zeros_of", "adjoint", "pin_memory",
    "imag", "view_as_real", "view_as_complex", "asinh", "acosh", "atanh", "erfc", "erfinv",
    "lgamma", "digamma", "polygamma", "entr", "ndtr", "ndtri", "log_ndtr", "erfcx", "i0", "i0e",
    "i1", "i1e", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0",
    "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "lu_packed",
    "matrix_exp", "scattered",
)  # fmt: skip
_BROADCAST = (
    "add", "sub", "mul", "div", "pow", "div_floor", "div_trunc", "floor_divide", "fmod",
    "remainder", "atan2", "maximum", "minimum", "clamp_low", "clamp_high", "clamp_between", "where",
    "masked_fill", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "hits",
    "complex", "hypot", "copysign", "xlogy", "xlog1py", "nextafter", "zeta", "gcd", "lcm", "igamma",
    "igammac", "gamma_slope", "logaddexp",
)  # fmt: skip
_ALIKE = ("mask", "shared", "rectified", "scale_gradient", "overwrite", "polar_tangent")
_REDUCTIONS = (
    "sum", "mean", "var", "std", "prod", "amax", "amin", "logsumexp", "vector_norm",
)  # fmt: skip
_LOSSES = (
    "squared_loss", "absolute_loss", "huber_loss", "kl_div", "kl_div_log", "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
)  # fmt: skip

#: The rules by op name.
RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(_BROADCAST, _broadcast),
    **dict.fromkeys(_ALIKE, _alike),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_LOSSES, _loss),
    **dict.fromkeys(("max", "min"), _extremum),
    **dict.fromkeys(("softmax", "log_softmax", "cumsum", "cumsum_back", "logcumsumexp"), _line),
    **dict.fromkeys(("getitem", "index", "zero_at"), _index),
    **dict.fromkeys(("zeros_with", "zeros_plus", "zeros_put"), _from_index),
    **dict.fromkeys(("put", "put_add", "scatter_multiply", "extreme_at"), _put),
    **dict.fromkeys(("convolution", "convolution_with_bias"), _convolution),
    **dict.fromkeys(("max_pool", "max_spread", "max_pick", "avg_pool", "avg_spread"), _images),
    **dict.fromkeys(("linear", "linear_with_bias"), _linear),
    **dict.fromkeys(("normalise", "root_mean_square"), _over_last),
    **dict.fromkeys(("layer_norm", "rms_norm"), _layer_norm),
    "sum_to": _sum_to,
    "expand": _expand,
    "reshape": lambda call, x, shape: R.reshape(x, (call.size, *shape)),
    "permute": lambda call, x, order: R.permute(x, (0, *_shifted(order))),
    "unsqueeze": lambda call, x, dim: R.unsqueeze(x, dim + 1),
    "squeeze": lambda call, x, dims: R.squeeze(x, _shifted(dims)),
    "as_strided": _as_strided,
    "narrow": lambda call, x, dim, start, length: R.narrow(x, dim + 1, start, length),
    "pad_zeros": lambda call, x, shape, dim, start: R.pad_zeros(
        x, (call.size, *shape), dim + 1, start
    ),
    "flip": lambda call, x, dims: R.flip(x, _shifted(dims)),
    "roll": _roll,
    "recurrence": _recurrence,
    "repeat": _repeat,
    "diagonal": lambda call, x, offset, dim1, dim2: R.diagonal(x, offset, dim1 + 1, dim2 + 1),
    "put_diagonal": lambda call, x, shape, offset, dim1, dim2: R.put_diagonal(
        x, (call.size, *shape), offset, dim1 + 1, dim2 + 1
    ),
    "pad": lambda call, x, widths, value: R.pad(x, ((0, 0), *widths), value),
    "spread": lambda call, x, shape, dims, keepdim: R.spread(
        x, (call.size, *shape), _shifted(dims), keepdim
    ),
    "mm": _mm,
    "mv": _mv,
    "dot": _dot,
    "outer": _outer,
    "bmm": _bmm,
    "euclidean_distances": _distances,
    "addmm": _addmm,
    "contract": _contract,
    "attention": _attention,
    "convolution_input": _convolution_input,
    "batch_norm": _batch_norm,
    "log_sums": _log_sums,
    "cosine_similarity": _cosine_similarity,
}
