"""Adaptive softmax, for many classes of which most are rare."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

from asyncgrad.nn import functional as F
from asyncgrad.nn.containers import ModuleList, Sequential
from asyncgrad.nn.function_module import FunctionModule
from asyncgrad.nn.linear import Linear
from asyncgrad.ops.api.elementwise import where
from asyncgrad.ops.api.index import gather
from asyncgrad.ops.api.rearrange import atleast_1d
from asyncgrad.ops.api.reduction import argmax
from asyncgrad.ops.api.scatter import index_copy
from asyncgrad.ops.api.shape import cat
from asyncgrad.records import NamedTuple
from asyncgrad.types import DeviceLike, DTypeLike, Tensor


class _ASMoutput(NamedTuple):
    """What `AdaptiveLogSoftmaxWithLoss` returns."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(FunctionModule, shown=()):
    """Adaptive log-softmax: a head for frequent classes, and tails for clusters of rare ones.

    Args:
        n_classes: the number of classes, which are numbered by falling frequency.
        cutoffs: the first class of each tail, in increasing order.
        div_value: how much narrower each tail is than the one before it.
        head_bias: add a bias to the head.

    Shapes:
        input (n, in_features), target (n,): output (n,), the logarithms of the targets'
        probabilities, and a scalar loss; or the same without n.
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
        head_bias: bool = False, device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            any(int(c) != c for c in cutoffs)
            or cutoffs != sorted(set(cutoffs))
            or min(cutoffs) <= 0
            or max(cutoffs) > n_classes - 1
        ):
            raise ValueError(
                f"cutoffs should be a sequence of unique, positive integers sorted in an "
                f"increasing order, where each value is between 1 and n_classes-1, got {cutoffs}"
            )
        cutoffs.append(n_classes)
        self._keep(locals())
        self.shortlist_size = cutoffs[0]
        self.n_clusters = len(cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail: ModuleList[Sequential] = ModuleList()
        for i, (start, end) in enumerate(pairwise(cutoffs)):
            hidden = int(in_features // div_value ** (i + 1))
            inner = Linear(in_features, hidden, bias=False, **place)
            self.tail.append(Sequential(inner, Linear(hidden, end - start, bias=False, **place)))

    def reset_parameters(self) -> None:
        """Redraw all parameters."""
        self.head.reset_parameters()
        for first, second in self.tail:
            for layer in (first, second):
                cast("Linear", layer).reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> _ASMoutput:  # type: ignore[override]
        """The logarithms of the targets' probabilities, and minus their mean."""
        ndim = target.ndim
        if ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if input.ndim != ndim + 1 or input.shape[:ndim] != target.shape:
            raise RuntimeError(
                f"Input and target should have the same size in the batch dimension, but got "
                f"shapes {input.shape} and {target.shape}"
            )
        rows = input if ndim else input.unsqueeze(0)
        classes = atleast_1d(target)
        if classes.numel() and not 0 <= int(classes.min()) <= int(classes.max()) < self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{classes.min().item()}, {classes.max().item()}] were found. "
            )
        clusters = classes.new_zeros(classes.shape)
        for cutoff in self.cutoffs[:-1]:
            clusters = clusters + (classes >= cutoff).long()
        places = where(clusters == 0, classes, self.shortlist_size + clusters - 1)
        head = F.log_softmax(self.head(rows), dim=1)
        output = gather(head, 1, places.unsqueeze(1)).squeeze(1)
        for i, tail in enumerate(self.tail):
            (found,) = (clusters == i + 1).nonzero(as_tuple=True)
            if found.numel():
                within = F.log_softmax(tail(rows.index_select(0, found)), dim=1)
                wanted = (classes.index_select(0, found) - self.cutoffs[i]).unsqueeze(1)
                part = output.index_select(0, found) + gather(within, 1, wanted).squeeze(1)
                output = index_copy(output, 0, found, part)
        loss = -output.mean()
        return _ASMoutput(output if ndim else output.squeeze(0), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """The logarithms of the probabilities of all classes, of shape (n, n_classes)."""
        head = F.log_softmax(self.head(input), dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            place = self.shortlist_size + i
            parts.append(F.log_softmax(tail(input), dim=1) + head[:, place : place + 1])
        return cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each input; tails are used where the head prefers one."""
        head = argmax(self.head(input), dim=1)
        rare = head >= self.shortlist_size
        if not bool(rare.any()):
            return head
        (found,) = rare.nonzero(as_tuple=True)
        if found.numel() == len(head):
            return argmax(self.log_prob(input), dim=1)
        return index_copy(
            head, 0, found, argmax(self.log_prob(input.index_select(0, found)), dim=1)
        )
