"""The functions that users call: PyTorch's signatures over the table's functions."""

from asyncgrad.ops.functions import (
    activation,
    conversion,
    creation,
    data,
    dlpack,
    dtypes,
    elementwise,
    index,
    linalg,
    loss,
    parts,
    random,
    reduction,
    shape,
    sort,
    sparse,
    transfer,
    turned,
)

#: The chapters, in the order in which later names would win.
CHAPTERS = (
    elementwise,
    reduction,
    shape,
    turned,
    conversion,
    transfer,
    dlpack,
    index,
    sort,
    linalg,
    activation,
    loss,
    creation,
    data,
    dtypes,
    parts,
    random,
    sparse,
)
