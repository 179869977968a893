"""Embeddings: tables of vectors, looked up by integers."""

from __future__ import annotations

from typing import Self

from asyncgrad.choices import BagMode
from asyncgrad.core.variable import Variable
from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.function_module import FunctionModule, unusual
from asyncgrad.nn.parameter import Parameter
from asyncgrad.types import DeviceLike, DTypeLike, Tensor


class Embedding(FunctionModule, function=F.embedding, members=("weight",)):
    """A table of vectors, looked up by integers.

    Args:
        num_embeddings: how many vectors there are.
        embedding_dim: their length.
        padding_idx: the vector that starts as zeros and gets no gradient.
        max_norm: vectors that are looked up are scaled down to this norm first.
        norm_type: the order of that norm.
        scale_grad_by_freq: divide gradients by the number of look-ups of each vector.
        sparse: gradients hold only the rows that were looked up.
        _weight: the table, of shape (num_embeddings, embedding_dim).
        _freeze: the table needs no gradient.
    """

    weight: Parameter

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False,
        device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError(
                    f"Padding_idx must be within num_embeddings: {padding_idx} is no row of "
                    f"{num_embeddings}"
                )
            padding_idx %= num_embeddings
        self._keep(locals())
        if _weight is None:
            self._add_parameters({"weight": (num_embeddings, embedding_dim)}, device, dtype)
            self.weight.requires_grad_(not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError(
                    f"Shape of weight {tuple(_weight.shape)} does not match num_embeddings and "
                    f"embedding_dim, {(num_embeddings, embedding_dim)}"
                )
            self.weight = Parameter(_weight, not _freeze)

    def reset_parameters(self) -> None:
        """Redraw the table from the standard normal distribution."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.data[self.padding_idx : self.padding_idx + 1])

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:  # fmt: skip
        """Create a module from an existing table.

        Args:
            embeddings: the table, of two axes.
            freeze: it needs no gradient.

        The other arguments are those of the class.
        """
        return cls(
            *_sizes(embeddings), padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
            _weight=embeddings, _freeze=freeze,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The sizes and options, as `repr` shows them."""
        sizes = f"{self.num_embeddings}, {self.embedding_dim}"
        return ", ".join([sizes, *unusual(self, {"padding_idx": None, **_USUAL, "sparse": False})])


class EmbeddingBag(FunctionModule, function=F.embedding_bag, members=("weight",)):
    """A table of vectors, whose rows are summed in bags.

    Args:
        mode: "sum", "mean" or "max".
        include_last_offset: offsets also say where the last bag ends.
        padding_idx: the vector that is in no bag.

    The other arguments are those of `Embedding`. A call takes those of
    `nn.functional.embedding_bag`: integers, where bags begin, and a weight for each integer.
    """

    def forward(  # type: ignore[empty-body]
        self, input: Tensor, offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """Call the function with the options."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: BagMode = "mean",
        sparse: bool = False, _weight: Tensor | None = None, include_last_offset: bool = False,
        padding_idx: int | None = None, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        table = Embedding(
            num_embeddings, embedding_dim, padding_idx, _weight=_weight, device=device, dtype=dtype
        )
        padding_idx = table.padding_idx
        self._keep(locals())
        self.weight = table.weight

    reset_parameters = Embedding.reset_parameters

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: BagMode = "mean",
        sparse: bool = False, include_last_offset: bool = False, padding_idx: int | None = None,
    ) -> Self:  # fmt: skip
        """Create a module from an existing table: see `Embedding.from_pretrained`."""
        made = cls(
            *_sizes(embeddings), max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings,
            include_last_offset, padding_idx,
        )  # fmt: skip
        made.weight.requires_grad_(not freeze)
        return made

    def extra_repr(self) -> str:
        """The sizes and options, as `repr` shows them."""
        sizes, mode = f"{self.num_embeddings}, {self.embedding_dim}", f"mode={self.mode!r}"
        last = unusual(self, {"padding_idx": None})
        return ", ".join([sizes, *unusual(self, _USUAL), mode, *last])


#: The values with which options are not shown.
_USUAL = {"max_norm": None, "norm_type": 2, "scale_grad_by_freq": False}


def _sizes(embeddings: Tensor) -> tuple[int, int]:
    """The numbers of rows and columns of a table."""
    if not isinstance(embeddings, Variable) or len(embeddings._metadata.shape) != 2:
        raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
    rows, columns = embeddings._metadata.shape
    return rows, columns
