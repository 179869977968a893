"""Embeddings: tables of vectors, looked up by integers."""

from __future__ import annotations

from typing import Any, Self

from asyncgrad.core.variable import Variable
from asyncgrad.nn import functional as F
from asyncgrad.nn import init
from asyncgrad.nn.module import Module
from asyncgrad.nn.parameter import Parameter, new_parameter


class Embedding(Module):
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
        device: the device of the table.
        dtype: its dtype.

    Raises:
        AssertionError: if `padding_idx` is not a row, or the table has another shape.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError(
                    f"Padding_idx must be within num_embeddings: {padding_idx} is no row of "
                    f"{num_embeddings}"
                )
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            self.weight = new_parameter(num_embeddings, embedding_dim, device=device, dtype=dtype)
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

    def forward(self, input: Any) -> Any:
        """The vectors of integers of any shape, along a new last axis."""
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Any,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:
        """Create a module from an existing table.

        Args:
            embeddings: the table, of two axes.
            freeze: it needs no gradient.
            padding_idx: the vector that gets no gradient.
            max_norm: vectors that are looked up are scaled down to this norm first.
            norm_type: the order of that norm.
            scale_grad_by_freq: divide gradients by the number of look-ups of each vector.
            sparse: gradients hold only the rows that were looked up.

        Raises:
            AssertionError: if the table has not two axes.
        """
        if not isinstance(embeddings, Variable) or len(embeddings._metadata.shape) != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings._metadata.shape
        return cls(
            rows,
            columns,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight=embeddings,
            _freeze=freeze,
        )

    def extra_repr(self) -> str:
        """The sizes and options, as `repr` shows them."""
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq:
            parts.append("scale_grad_by_freq=True")
        if self.sparse:
            parts.append("sparse=True")
        return ", ".join(parts)


class EmbeddingBag(Module):
    """A table of vectors, whose rows are summed in bags.

    Args:
        num_embeddings: how many vectors there are.
        embedding_dim: their length.
        max_norm: vectors that are looked up are scaled down to this norm first.
        norm_type: the order of that norm.
        scale_grad_by_freq: divide gradients by the number of look-ups of each vector.
        mode: "sum", "mean" or "max".
        sparse: gradients hold only the rows that were looked up.
        _weight: the table, of shape (num_embeddings, embedding_dim).
        include_last_offset: offsets also say where the last bag ends.
        padding_idx: the vector that is in no bag.
        device: the device of the table.
        dtype: its dtype.

    Raises:
        AssertionError: if `padding_idx` is not a row, or the table has another shape.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        table = Embedding(
            num_embeddings, embedding_dim, padding_idx, _weight=_weight, device=device, dtype=dtype
        )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.padding_idx = table.padding_idx
        self.weight = table.weight
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def reset_parameters(self) -> None:
        """Redraw the table from the standard normal distribution."""
        Embedding.reset_parameters(self)  # type: ignore[arg-type]

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """The sum, mean or maximum of each bag: see `nn.functional.embedding_bag`."""
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Any,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:
        """Create a module from an existing table.

        Args:
            embeddings: the table, of two axes.
            freeze: it needs no gradient.
            max_norm: vectors that are looked up are scaled down to this norm first.
            norm_type: the order of that norm.
            scale_grad_by_freq: divide gradients by the number of look-ups of each vector.
            mode: "sum", "mean" or "max".
            sparse: gradients hold only the rows that were looked up.
            include_last_offset: offsets also say where the last bag ends.
            padding_idx: the vector that is in no bag.

        Raises:
            AssertionError: if the table has not two axes.
        """
        if not isinstance(embeddings, Variable) or len(embeddings._metadata.shape) != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings._metadata.shape
        made = cls(
            rows,
            columns,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        made.weight.requires_grad_(not freeze)
        return made

    def extra_repr(self) -> str:
        """The sizes and options, as `repr` shows them."""
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        parts.append(f"mode={self.mode!r}")
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        return ", ".join(parts)
