"""Losses of pairs of elements, of classes, and cosine similarity."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncgrad.choices import DivergenceReduction, Reduction
from asyncgrad.core.frames import warn
from asyncgrad.core.metadata import Metadata
from asyncgrad.core.recording import again
from asyncgrad.core.variable import Variable, wrap
from asyncgrad.devices import Device
from asyncgrad.errors import AutogradError
from asyncgrad.ops import promotion
from asyncgrad.ops.api.activation import log_softmax, logsigmoid
from asyncgrad.ops.api.index import getitem
from asyncgrad.ops.arguments import check_constant, chosen_reduction, greatest, one_dim
from asyncgrad.ops.batching import by_parts, level_of, mapped, unwrap_batch
from asyncgrad.ops.converted import converted
from asyncgrad.ops.dtype import FLOATING, INEXACT, check_dtype, is_half
from asyncgrad.ops.float32_compute import in_float32
from asyncgrad.ops.fused import compiled
from asyncgrad.ops.namespace import RECORDED as R
from asyncgrad.ops.node_names import renamed, watch
from asyncgrad.ops.requirements import requires, unmet
from asyncgrad.types import Alike, Array, Floating, Library, Tensor, Truth

#: The functions at PyTorch's top level; all functions here are in `nn.functional`.
__all__ = ["cosine_similarity"]


#: PyTorch's nodes of reductions that are separate from the loss.
_REDUCED = {"mean": "MeanBackward0", "sum": "SumBackward0", "batchmean": "DivBackward0"}


def reduced(losses: Tensor, reduction: Reduction) -> Any:
    """The losses, or their mean or sum."""
    if reduction == "none":
        return losses
    dims = tuple(range(len(losses._metadata.shape)))
    function = R.sum if reduction == "sum" else R.mean
    return renamed(function(losses, dims, False), _REDUCED[reduction])


def reduced_as(name: str, losses: Tensor, input: Tensor, reduction: Reduction) -> Any:
    """`reduced`, of losses that targets and weights must not have made larger than the input."""
    shape, found = input._metadata.shape, losses._metadata.shape
    if found != shape:
        raise unmet(name, f"output with shape {list(shape)} doesn't match the broadcast shape "
                    f"{list(found)}")  # fmt: skip
    return reduced(losses, reduction)


def _share(size: int) -> float:
    """The weight of each of `size` elements in a mean."""
    return 1 / size if size else float("nan")


def _pair(name: str, input: Tensor, target: Tensor, warns: bool = False) -> tuple[Any, Any]:
    """Broadcast two tensors, with a warning or without, and convert them to one floating dtype."""
    x: Any = input
    y: Any = target
    if x._metadata is not y._metadata:
        shape, other = x._metadata.shape, y._metadata.shape
        if shape != other:
            promotion.check_broadcast(name, x, y)
            full = x._metadata.F.xp.broadcast_shapes(shape, other)
            x = x if shape == full else R.expand(x, full)
            y = y if other == full else R.expand(y, full)
        # Expanded first, so that a tensor without axes has full weight in type promotion.
        dtype = promotion.result_dtype(x, y)
        x, y = promotion.cast(x, dtype), promotion.cast(y, dtype)
    if name != "l1_loss":
        check_dtype(name, x._metadata.dtype, INEXACT)
        if x._metadata.is_complex:
            error = AutogradError if name == "kl_div" else NotImplementedError
            raise error(f'{name}: "{name}" not implemented for complex tensors. Take the losses of '
                        f"the real and imaginary parts, or of abs().")  # fmt: skip
    if warns and input._metadata.shape != target._metadata.shape:
        warn(
            f"Using a target size ({target._metadata.shape}) that is different to the input size "
            f"({input._metadata.shape}). This will likely lead to incorrect results due to "
            f"broadcasting. Please ensure they have the same size."
        )
    return x, y


def _of_pair(
    op: Callable[..., Any], x: Tensor, y: Tensor, parameter: float | None, reduction: Reduction,
    factor: float = 1,
) -> Any:  # fmt: skip
    """A loss of pairs of elements by its op."""
    if reduction == "none":
        losses = op(x, y, parameter, 1.0, True)
        return losses if factor == 1 else R.mul_scalar(losses, factor)
    return op(
        x, y, parameter, factor if reduction == "sum" else factor * _share(x._metadata.size), False
    )


def _absolute(x: Tensor, y: Tensor, reduction: Reduction) -> Any:
    loss = _of_pair(R.absolute_loss, x, y, None, reduction)
    return renamed(loss, _REDUCED.get(reduction, "AbsBackward0"))


def in_dtype(name: str, losses: Tensor, like: Tensor) -> Any:
    """Cast losses to the dtype of the tensor into which PyTorch writes them."""
    dtype = like._metadata.dtype
    if promotion.category(dtype) < 2:
        raise unmet(name, f"result type {losses.dtype} can't be cast to the desired output type",
                    AutogradError, input=dtype)  # fmt: skip
    return promotion.cast(losses, dtype)


def _weighted(name: str, losses: Tensor, input: Tensor, weight: Tensor) -> Any:
    """Multiply losses by weights of the input's shape."""
    if weight._metadata.shape != input._metadata.shape:
        raise unmet(name, "Weights and input must have the same size",
                    ValueError, weight=weight, input=input)  # fmt: skip
    return R.mul(losses, weight)


def _weighted_mean(
    name: str, losses: Tensor, input: Tensor, weight: Tensor, reduction: Reduction
) -> Any:
    """Weighted losses, their sum, or their mean in which elements count by their weights."""
    losses = _weighted(name, losses, input, weight)
    if reduction == "mean":
        return R.div(reduced(losses, "sum"), reduced(weight, "sum"))
    return reduced(losses, reduction)


def mse_loss(
    input: Tensor, target: Tensor, size_average: Truth | None = None, reduce: Truth | None = None,
    reduction: Reduction = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The squares of the differences.

    Args:
        input: a floating tensor.
        target: a tensor of the same shape.
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
        weight: the weight of each element, of the same shape; the mean is weighted, too.
    """
    x, y = _pair("mse_loss", input, target, warns=True)
    if weight is None:
        return _of_pair(R.squared_loss, x, y, None, reduction)
    losses = R.squared_loss(x, y, None, 1.0, True)
    return _weighted_mean("mse_loss", losses, input, weight, reduction)


def l1_loss(
    input: Tensor, target: Tensor, size_average: Truth | None = None, reduce: Truth | None = None,
    reduction: Reduction = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The absolute values of the differences, of any numbers; see `mse_loss`."""
    x, y = _pair("l1_loss", input, target, warns=True)
    if x._metadata.dtype.kind not in FLOATING:
        losses = R.abs(R.sub(x, y))
        if weight is None:
            return losses if reduction == "none" else getattr(losses, reduction)()
    elif weight is None:
        return _absolute(x, y, reduction)
    else:
        losses = R.absolute_loss(x, y, None, 1.0, True)
    return _weighted_mean("l1_loss", losses, input, weight, reduction)


@requires("beta >= 0  # smooth_l1_loss does not support negative values for beta")
def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: Truth | None = None, reduce: Truth | None = None,
    reduction: Reduction = "mean", beta: float = 1.0,
) -> Tensor:  # fmt: skip
    """`d**2 / (2 * beta)` for differences `d` below `beta`, and `d - beta / 2` for others.

    Args:
        input, target, reduction: as in `mse_loss`.
        beta: the difference at which the loss becomes linear; 0 gives `l1_loss`.
    """
    x, y = _pair("smooth_l1_loss", input, target, warns=True)
    if beta == 0:
        return _absolute(x, y, reduction)
    return renamed(_of_pair(R.huber_loss, x, y, beta, reduction, 1 / beta), "SmoothL1LossBackward0")


@requires("delta > 0  # huber_loss does not support non-positive values for delta")
def huber_loss(
    input: Tensor, target: Tensor, reduction: Reduction = "mean", delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`d**2 / 2` for differences `d` up to `delta`, and `delta * (d - delta / 2)` for others.

    Args:
        input, target, reduction: as in `mse_loss`.
        delta: the difference at which the loss becomes linear.
        weight: the weight of each element, of the same shape.
    """
    x, y = _pair("huber_loss", input, target, warns=True)
    if weight is None:
        return in_dtype("huber_loss", _of_pair(R.huber_loss, x, y, delta, reduction), input)
    losses = in_dtype("huber_loss", R.huber_loss(x, y, delta, 1.0, True), input)
    return reduced(_weighted("huber_loss", losses, input, weight), reduction)


def kl_div(
    input: Tensor, target: Tensor, size_average: Truth | None = None, reduce: Truth | None = None,
    reduction: DivergenceReduction = "mean", log_target: bool = False,
) -> Tensor:  # fmt: skip
    """The Kullback-Leibler divergence of log-probabilities from a target.

    Args:
        input: log-probabilities.
        target: probabilities, or their logarithms.
        size_average, reduce: deprecated.
        reduction: "batchmean" (the sum by the length of the first axis), "mean", "sum" or "none".
        log_target: the target holds logarithms.
    """
    if size_average is not None or reduce is not None:
        reduction = chosen_reduction("mean", size_average, reduce)
    elif reduction == "mean":
        warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support "
            "size. 'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition. 'mean' will be changed to behave the same as 'batchmean' in the next "
            "major release."
        )
    operands = promotion.tensor_operands("kl_div", input, target)
    if any(promotion.category(operand._metadata.dtype) < 2 for operand in operands):
        raise RuntimeError("kl_div: Integral inputs not supported. Convert them with .to().")
    # As in PyTorch's arithmetic, a tensor without axes has less weight in type promotion.
    dtype = promotion.result_dtype(*operands)
    x, y = _pair("kl_div", *(promotion.cast(operand, dtype) for operand in operands))
    op = R.kl_div_log if log_target else R.kl_div
    if reduction == "batchmean":
        shape = input._metadata.shape
        loss = _of_pair(op, x, y, None, "sum", _share(shape[0]) if shape else 1)
    else:
        loss = _of_pair(op, x, y, None, chosen_reduction(reduction))
    each = "MulBackward0" if log_target else "SubBackward0"
    return renamed(loss, _REDUCED.get(reduction, each))


def _check_probabilities(what: str, array: Array) -> None:
    if not (array.min() >= 0 and array.max() <= 1):
        raise RuntimeError(
            f"binary_cross_entropy: all elements of {what} should be between 0 and 1. "
            f"For logits, use binary_cross_entropy_with_logits."
        )


@requires(
    "target.shape == input.shape  # Using a target size that is different to the input size is "
    "deprecated. Please ensure they have the same size",
    error=ValueError,
)
def binary_cross_entropy(
    input: Tensor, target: Alike, weight: Tensor | None = None, size_average: Truth | None = None,
    reduce: Truth | None = None, reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """The binary cross entropy of probabilities; logarithms are clamped to at least -100.

    Args:
        input: probabilities.
        target: probabilities of the same shape and dtype.
        weight: the weight of each element, broadcast to the target's shape.
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
    """
    x, y = _pair("binary_cross_entropy", input, target)
    # Device values are not checked, as the host would wait; invalid ones give NaN.
    if x._metadata.size and not x._metadata.device.streamed:
        for what, tensor in (("input", x), ("target", y)):
            again(_check_probabilities, what, unwrap_batch(tensor, level_of((tensor,)))._array)
    if weight is None:
        return _of_pair(R.binary_cross_entropy, x, y, None, reduction)
    losses = R.binary_cross_entropy(x, y, None, 1.0, True)
    losses = promotion.cast(R.mul(losses, weight), x._metadata.dtype)
    losses = reduced_as("binary_cross_entropy", losses, input, reduction)
    return renamed(losses, "BinaryCrossEntropyBackward0")


@requires(
    "target.shape == input.shape  # Target size must be the same as input size", error=ValueError
)
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Truth | None = None,
    reduce: Truth | None = None, reduction: Reduction = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The binary cross entropy of logits.

    Args:
        input: logits.
        target: probabilities of the same shape; the losses have their dtype.
        weight, reduction: as in `binary_cross_entropy`.
        pos_weight: the weight of positive targets, broadcast.
    """
    name = "binary_cross_entropy_with_logits"
    if promotion.category(target._metadata.dtype) < 2 == promotion.category(input._metadata.dtype):
        raise unmet(name, "result type Float can't be cast to the desired output type: targets are "
                    "probabilities", target=target._metadata.dtype)  # fmt: skip
    check_dtype(name, input._metadata.dtype, INEXACT)
    x, y = _pair(name, input, target)
    if x._metadata.dtype.kind == "V":
        return in_dtype(name, in_float32(
            binary_cross_entropy_with_logits, x, y, weight, reduction=reduction,
            pos_weight=pos_weight,
        ), target)  # fmt: skip
    if weight is None and pos_weight is None:
        losses = _of_pair(R.binary_cross_entropy_with_logits, x, y, None, reduction)
        return in_dtype(name, losses, target)
    if pos_weight is None:
        losses = R.binary_cross_entropy_with_logits(x, y, None, 1.0, True)
    else:
        factors = R.add_scalar(R.mul(R.sub(pos_weight, 1), y), 1)
        losses = R.sub(R.mul(R.rsub_scalar(y, 1), x), R.mul(factors, logsigmoid(x)))
    if weight is not None:
        losses = R.mul(losses, weight)
    losses = reduced_as(name, in_dtype(name, losses, target), input, reduction)
    return renamed(losses, "BinaryCrossEntropyWithLogitsBackward0")


# -- classes --------------------------------------------------------------------------------------


def _class_target(name: str, x: Tensor, target: Tensor, ignore_index: int) -> tuple[int, Any, Any]:
    """The axis of classes, the target with 0 for ignored elements, and the mask of counted ones.

    The mask is None if no element is ignored.
    """
    promotion.check_device(name, x, target)
    shape, other = x._metadata.shape, target._metadata.shape
    if not shape:
        raise ValueError(f"{name}: Expected 1 or more dimensions (got 0)")
    dim = 0 if len(shape) == 1 else 1
    if len(shape) > 1 and (not other or shape[0] != other[0]):
        raise ValueError(
            f"{name}: Expected input batch_size ({shape[0]}) to match target batch_size "
            f"({other[0] if other else 1}): shapes {shape} and {other}."
        )
    if target._metadata.dtype.kind not in "iu":
        raise unmet(name, "expected target dtype to be Long or Byte: class indices. Convert it "
                    "with .to(asyncgrad.int64)", target=target._metadata.dtype)  # fmt: skip
    expected = (*shape[:dim], *shape[dim + 1 :])
    if other != expected and len(shape) == len(other) == 1:
        if other != (1,):
            raise unmet(name, "For 1D input, 1D target must have size 1", ValueError, target=target)
        target = R.reshape(target, ())
    elif other != expected:
        raise unmet(name, f"Expected target size {expected}, that of the input without the axis of "
                    "classes", target=target, input=x)  # fmt: skip
    labels = target._metadata.device.launching(_labels)
    return dim, *again(labels, name, target._array, shape[dim], ignore_index, x._metadata)


def _labels(
    name: str, array: Array, classes: int, ignore_index: int, metadata: Metadata
) -> tuple[Any, Any]:
    """The target with 0 for ignored elements, and the mask of counted ones, as `_class_target`.

    On a device, classes are not checked, since the host would wait: those out of range give NaN.
    """
    if not array.size:
        return array, None
    if metadata.device.streamed:
        xp, number = metadata.F.xp, metadata.dtype.type
        found = compiled(xp, "class_counts", array, classes, ignore_index, number("nan"))
        if found is not NotImplemented:
            return tuple(found)
        where = xp.where
        # CuPy converts Python's numbers to the array's dtype, which may not hold them.
        known = array.view(f"u{array.itemsize}") < np.uint64(classes)
        counted = where(known, number(1), number("nan"))
        place = where(known, array, array.dtype.type(0))
        return place, where(array == np.int64(ignore_index), number(0), counted)
    # Viewed as unsigned, negative numbers are huge, so one maximum usually checks both bounds.
    if ignore_index < 0 and greatest(array.view(f"u{array.itemsize}")) < classes:
        return array, None
    counted = array != ignore_index
    array = array * counted
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= classes:
        raise IndexError(
            f"{name}: Target {low if low < 0 else high} is out of bounds for {classes} classes. "
            f"Classes count from 0; what is not to count is ignore_index ({ignore_index})."
        )
    return array, None if counted.all() else counted


def _class_weight(name: str, weight: Tensor | None, x: Tensor, dim: int) -> Any:
    """The checked array of class weights, by which there is no derivative, or None."""
    if weight is None:
        return None
    check_constant(name, "weight", _checked_weight(name, weight, x, dim))
    return weight._array


def _checked_weight(name: str, weight: Tensor, x: Tensor, dim: int) -> Tensor:
    promotion.check_device(name, x, weight)
    if weight._metadata.shape != (x._metadata.shape[dim],):
        raise unmet(name, f"weight tensor should be defined either for all {x.shape[dim]} classes "
                    "or no classes", weight=weight)  # fmt: skip
    if weight._metadata.dtype != x._metadata.dtype:
        raise unmet(
            name, f"expected scalar type {x._metadata.dtype}", weight=weight._metadata.dtype
        )
    return weight


def _counts(
    x: Tensor, dim: int, target: Array, counted: Array | None, weight: Array | None,
    reduction: Reduction,
) -> Any:  # fmt: skip
    """The weight of each element of the target in the sum.

    Returns:
        The weights with and without class weights; the mask of elements that are not ignored, or
        None; and the term to add to the sum: NaN for a mean over nothing (a tensor on a device),
        else None.
    """
    if counted is None and weight is None:
        share = _share(target.size) if reduction == "mean" else 1.0
        empty = reduction == "mean" and not target.size
        return share, share, None, float("nan") if empty else None
    count = x._metadata.device.launching(_counted)
    return again(count, x._metadata, dim, target, counted, weight, reduction)


def _times(device: Device, x: Any, factor: float) -> Any:
    """A number or an array times a factor."""
    if isinstance(x, (int, float)):
        return x * factor
    return again(device.launching(operator.mul), x, factor)


def _counted(
    metadata: Metadata, dim: int, target: Array, counted: Array | None, weight: Array | None,
    reduction: Reduction,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    extra: Any = None
    F, dtype = metadata.F, metadata.dtype
    ones = F.xp.ones(target.shape, dtype) if counted is None else F.xp.asarray(counted, dtype)
    weighted = ones if weight is None else weight[target] * ones
    if reduction == "mean":
        total = weighted.sum()
        # If all elements are ignored, the gradient is zero, and the mean is NaN.
        if metadata.device.streamed:
            nothing = F.as_array(F.xp.divide(dtype.type(0), total))
            extra = wrap(nothing, F.metadata_of(nothing))
        elif total == 0:
            total, extra = dtype.type("inf"), float("nan")
        ones = _divided(F.xp, ones, total)
        weighted = ones if weight is None else _divided(F.xp, weighted, total)
    shape = metadata.shape
    lines = (*shape[:dim], 1, *shape[dim + 1 :])
    kept = None if counted is None else counted.reshape(lines)
    return weighted.reshape(lines), ones.reshape(lines), kept, extra


def _divided(xp: Library, weights: Array, total: Array) -> Any:
    """Weights divided by their total; on a device, 0 if that is 0."""
    if xp.ndarray is np.ndarray:
        return weights / total
    found = compiled(xp, "class_shares", weights, total)
    if found is not NotImplemented:
        return found
    return weights / xp.where(total != 0, total, weights.dtype.type("inf"))


def nll_loss(
    input: Floating, target: Tensor, weight: Tensor | None = None,
    size_average: Truth | None = None, ignore_index: int = -100, reduce: Truth | None = None,
    reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """The negative log-probabilities of the target's classes.

    Args:
        input: log-probabilities of shape (n, classes, ...) or (classes,).
        target: integer classes of shape (n, ...), or without n of shape () or (1,).
        weight: the weight of each class, of shape (classes,); the mean is weighted, too.
        ignore_index: a class whose elements are ignored.
        reduction: "mean", "sum" or "none"; `size_average` and `reduce` are deprecated.
    """
    if input._metadata.dtype.kind == "V":
        return in_float32(
            nll_loss, input, target, weight, ignore_index=ignore_index, reduction=reduction
        )
    if input._batched or target._batched or getattr(weight, "_batched", False):
        return _of_examples(nll_loss, input, target, weight, ignore_index, reduction)
    dim, classes, counted = _class_target("nll_loss", input, target, ignore_index)
    weights = _class_weight("nll_loss", weight, input, dim)
    counts, _, kept, extra = _counts(input, dim, classes, counted, weights, reduction)
    out = R.nll_loss(input, dim, classes, counts, kept, reduction == "none")
    watch(out._edge, (target,))
    return _plus(_of_images(input, out), extra)


def _of_images(x: Tensor, out: Tensor) -> Any:
    """Rename the node of a class loss, as PyTorch does for inputs with more axes."""
    return renamed(out, "NllLoss2DBackward0") if len(x._metadata.shape) > 2 else out


def _plus(out: Tensor, extra: Tensor | float | None) -> Any:
    """Add the last result of `_counts` to a mean, unless it is None."""
    if extra is None:
        return out
    return R.add(out, extra) if isinstance(extra, Variable) else R.add_scalar(out, extra)


@requires("0 <= label_smoothing <= 1  # label_smoothing must be between 0.0 and 1.0")
def cross_entropy(
    input: Floating, target: Tensor, weight: Tensor | None = None,
    size_average: Truth | None = None, ignore_index: int = -100, reduce: Truth | None = None,
    reduction: Reduction = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """The cross entropy of logits and classes, or probabilities of classes.

    Args:
        input: logits of shape (n, classes, ...) or (classes,).
        target: integer classes of shape (n, ...), or without n of shape () or (1,), or
            probabilities of the input's shape.
        weight, ignore_index, reduction: as in `nll_loss`; only with integer classes the mean is
            weighted.
        label_smoothing: the share of the target that is spread over all classes, in [0, 1].
    """
    x, metadata = input, input._metadata
    soft = metadata.shape == target._metadata.shape != ()
    if soft and promotion.category(target._metadata.dtype) == 2:
        x = promotion.cast(x, promotion.result_dtype(x, target))
    dtype = x._metadata.dtype
    # Sums over many classes overflow in float16, and so does their number.
    if dtype.kind == "V" or (label_smoothing and is_half(dtype)):
        return in_float32(
            cross_entropy, x, target, weight, ignore_index=ignore_index, reduction=reduction,
            label_smoothing=label_smoothing,
        )  # fmt: skip
    if soft:
        if ignore_index >= 0:
            raise unmet("cross_entropy", "ignore_index is not supported for floating point target. "
                        "Give the examples that are not to count a weight of 0",
                        ignore_index=ignore_index)  # fmt: skip
        return _soft_cross_entropy(x, target, weight, reduction, label_smoothing)
    if x._batched or target._batched or getattr(weight, "_batched", False):
        return _of_examples(
            cross_entropy, x, target, weight, ignore_index, reduction,
            label_smoothing=label_smoothing,
        )  # fmt: skip
    dim, classes, counted = _class_target("cross_entropy", x, target, ignore_index)
    weights = _class_weight("cross_entropy", weight, x, dim)
    counts, smooth, kept, extra = _counts(x, dim, classes, counted, weights, reduction)
    if label_smoothing:
        device = metadata.device
        counts = _times(device, counts, 1 - label_smoothing)
        smooth = _times(device, smooth, label_smoothing / metadata.shape[dim])
        if weights is not None:
            shape = (-1,) + (1,) * (len(metadata.shape) - 1 - dim)
            weights = again(device.launching(np.reshape), weights, shape)
    else:
        smooth = weights = None
    top, sums = again(metadata.kernels["log_sums"], x._array, dim)
    out = R.cross_entropy(
        x, top, sums, dim, classes, counts, kept, smooth, weights, reduction == "none"
    )
    watch(out._edge, (target,) if weights is None else (target, weight))
    return _plus(_of_images(x, out), extra)


def _of_examples(
    function: Callable[..., Any], x: Tensor, target: Tensor, weight: Tensor | None,
    ignore_index: int, reduction: Reduction, **more: Any,
) -> Any:  # fmt: skip
    """A class loss under `vmap`, computed for all examples at once."""
    shape = x._metadata.shape
    if not shape or getattr(weight, "_batched", False):
        return by_parts(
            function, x, target, weight, ignore_index=ignore_index, reduction=reduction, **more
        )
    dim = 0 if len(shape) == 1 else 1
    classes = shape[dim]

    def losses(batch: Tensor, labels: Tensor) -> Any:
        rows = R.reshape(batch, (-1, *batch.shape[2 - (dim == 0) :]))
        flat = R.reshape(labels, (-1, *labels.shape[2:]))
        each = function(rows, flat, weight, ignore_index=ignore_index, reduction="none", **more)
        # The class of one example without a batch may have an axis; its loss has none.
        return R.reshape(each, labels.shape if dim else labels.shape[:1])

    def shares(labels: Tensor) -> Any:
        counted = R.to(R.ne(labels, promotion.constant(ignore_index, labels)), x._metadata.dtype)
        if weight is None:
            return counted
        known = R.where(
            R.eq(labels, promotion.constant(ignore_index, labels)), R.mul_scalar(labels, 0), labels
        )
        return R.mul(counted, getitem(weight, known))

    each = mapped(losses, x, target)
    if reduction == "none":
        return each
    total = R.sum(each, tuple(range(len(each.shape))), False)
    if reduction == "sum":
        return total
    if not classes:
        return total
    count = shares(target)
    return R.div(total, R.sum(count, tuple(range(len(count.shape))), False))


def _soft_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: Reduction, label_smoothing: float
) -> Any:
    shape = x._metadata.shape
    dim = 0 if len(shape) == 1 else 1
    if promotion.category(target._metadata.dtype) != 2:
        raise unmet("cross_entropy", "Expected floating point type for target with class "
                    "probabilities. Class indices have the shape of the input without the axis of "
                    "classes", target=target.dtype)  # fmt: skip
    if weight is not None:
        weight = _checked_weight("cross_entropy", weight, x, dim)
        weight = R.reshape(weight, (-1,) + (1,) * (len(shape) - 1 - dim))
    if label_smoothing:
        share = label_smoothing / shape[dim]
        target = R.add_scalar(R.mul_scalar(target, 1 - label_smoothing), share)
    products = R.mul(log_softmax(x, dim), target)
    if weight is not None:
        products = R.mul(products, weight)
    if reduction == "none":
        return R.neg(R.sum(products, (dim,), False))
    total = R.neg(R.sum(products, tuple(range(len(shape))), False))
    if reduction == "sum":
        return total
    return R.mul_scalar(total, _share(x._metadata.size // shape[dim] if shape[dim] else 0))


@converted
@requires("eps >= 0  # eps must be non-negative")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosines of the angles between vectors along an axis.

    Args:
        x1: a floating tensor.
        x2: a tensor that can be broadcast against the first.
        eps: the lower bound of the norms.
    """
    if promotion.category(promotion.result_dtype(x1, x2)) != 2:
        raise unmet("cosine_similarity", "expected common dtype to be floating point",
                    x1=x1.dtype, x2=x2.dtype)  # fmt: skip
    x1, x2 = _pair("cosine_similarity", x1, x2)
    if x1._metadata.dtype.kind == "V":
        return in_float32(cosine_similarity, x1, x2, dim, eps)
    shape = x1._metadata.shape
    axis = one_dim("cosine_similarity", dim, len(shape))
    if not shape:
        return R.reshape(R.cosine_similarity(R.reshape(x1, (1,)), R.reshape(x2, (1,)), 0, eps), ())
    return R.cosine_similarity(x1, x2, axis, eps)
