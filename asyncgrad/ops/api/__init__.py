"""The functions that users call: PyTorch's signatures over the table's functions.

A chapter lists its public functions in `__all__`, those that are also methods of tensors in
`METHODS`, and those that also have an in-place form, as `add` has `add_`, in `IN_PLACE`.
"""

from asyncgrad.ops.api import (
    activation,
    attention,
    comparison,
    complex_parts,
    composite,
    conversion,
    convolution,
    creation,
    ctc,
    data,
    distances,
    dlpack,
    dropout,
    dtypes,
    elementwise,
    embedding_bag,
    fourier,
    grid_sample,
    grids,
    index,
    interpolate,
    linalg,
    linalg_legacy,
    linalg_norm,
    loss,
    margin_loss,
    matrices,
    normalisation,
    patches,
    pooling,
    random,
    rearrange,
    reduction,
    scatter,
    shape,
    signals,
    sort,
    sparse,
    strided,
    transcendental,
    transfer,
    triangular,
)
from asyncgrad.ops.converted import convert_arguments

#: The chapters whose functions are methods; where two define one name, the later one wins.
CHAPTERS = (
    elementwise, reduction, shape, strided, conversion, transfer, dlpack, index, sort, linalg,
    linalg_legacy, activation, loss, creation, data, dtypes, complex_parts, random, sparse,
    rearrange, composite, comparison, scatter, distances, transcendental, grids, signals,
)  # fmt: skip
#: The chapters whose functions are public at the top.
TOP = (
    *(c for c in CHAPTERS if c not in {conversion, sparse, transfer}),
    convolution,
    normalisation,
    pooling,
)

for _chapter in (*CHAPTERS, *TOP):
    vars(_chapter).setdefault("METHODS", ())
    vars(_chapter).setdefault("IN_PLACE", ())
convert_arguments((
    *TOP, *CHAPTERS, ctc, dropout, embedding_bag, fourier, grid_sample, interpolate, linalg_norm,
    margin_loss, matrices, attention, patches, triangular,
))  # fmt: skip
