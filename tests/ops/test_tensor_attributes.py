"""What ported programs ask tensors for beside functions."""

import copy
import operator
import warnings

import numpy as np
import pytest
from answers import check_answer

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch


def _x(library):
    return library.tensor([[1.5, -2.0, 3.0], [4.0, 5.0, -6.0]])


def _shifted(library, shift):
    x = library.tensor([4, 6])
    found = shift(x, 1)
    return found is x, x.tolist(), x._version


FACTS = {
    "contains a number": lambda L: 2.0 in _x(L),
    "contains another number": lambda L: 4.0 in _x(L),
    "contains a tensor": lambda L: _x(L) in _x(L),
    "contains a word": lambda L: "a" in _x(L),
    "reversed": lambda L: [row.tolist() for row in reversed(_x(L))],
    "reversed number": lambda L: reversed(L.tensor(1)).item(),
    "format": lambda L: f"{L.tensor(2.71828):.2f} {L.tensor(3):d}",
    "format of numbers without a word": lambda L: f"{L.tensor(2.5)} {L.tensor(True)} {L.tensor(7)}",
    "format of what requires grad": lambda L: f"{L.tensor(2.5, requires_grad=True)}",
    "format of a parameter": lambda L: f"{L.nn.Parameter(L.tensor(2.5)):.2f}",
    "contains NumPy's number": lambda L: np.float32(1.5) in _x(L),
    "an element deleted": lambda L: operator.delitem(_x(L), 0),
    "shifted in place": lambda L: _shifted(L, operator.ilshift),
    "shifted back in place": lambda L: _shifted(L, operator.irshift),
    "a fraction shifted in place": lambda L: operator.ilshift(L.tensor([1.5]), 1),
    "long doubles": lambda L: L.from_numpy(np.ones(2, np.longdouble)),
    "strides of what is empty": lambda L: [
        L.zeros(shape).stride() for shape in ((0,), (3, 0), (0, 3), (2, 0, 4), (1, 0, 1))
    ],
    "strides of a copy": lambda L: copy.deepcopy(_x(L).t()).stride(),
    "format of many": lambda L: f"{_x(L):.2f}",
    "nelement": lambda L: (_x(L).nelement(), _x(L).ndimension()),
    "bytes": lambda L: (_x(L).nbytes, _x(L).itemsize),
    "offset": lambda L: (_x(L)[1].storage_offset(), _x(L).storage_offset()),
    "contiguous": lambda L: _x(L).t().is_contiguous(memory_format=L.contiguous_format),
    "channels last": lambda L: L.ones(2, 3, 4, 5).is_contiguous(memory_format=L.channels_last),
    "channels of one": lambda L: L.ones(2, 1, 4, 5).is_contiguous(memory_format=L.channels_last),
    "type": lambda L: _x(L).type().rpartition(".")[2],
    "type by dtype": lambda L: _x(L).type(L.float64).tolist(),
    "type by name": lambda L: _x(L).type("torch.LongTensor").tolist(),
    "signed": lambda L: (_x(L).is_signed(), L.ones(1, dtype=L.uint8).is_signed()),
    "signed as a function": lambda L: (L.is_signed(_x(L)), L.is_signed(L.ones(1) > 0)),
    "signed number": lambda L: L.is_signed(1),
    "typename": lambda L: L.typename(_x(L)).rpartition(".")[2],
    "typename of others": lambda L: (L.typename(1), L.typename(np.ones(1)), L.typename(int)),
    "storages": lambda L: (L.is_storage(_x(L).untyped_storage()), L.is_storage(_x(L))),
    "layout": lambda L: str(_x(L).layout).rpartition(".")[2],
    "H": lambda L: _x(L).H.tolist(),
    "H of a vector": lambda L: L.ones(2).H,
    "mT of a vector": lambda L: L.ones(2).mT,
    "H of a batch": lambda L: L.ones(2, 2, 2).H,
    "mH": lambda L: L.tensor([[1 + 2j, 3]]).mH.tolist(),
    "parts": lambda L: (L.tensor([1 + 2j]).real.tolist(), L.tensor([1 + 2j]).imag.tolist()),
    "no imaginary part": lambda L: _x(L).imag,
    "shapes": lambda L: repr(L.broadcast_shapes((2, 1), (3,))).partition(".")[2],
    "shapes that do not fit": lambda L: L.broadcast_shapes((2,), (3,)),
    "in place": lambda L: _x(L).lerp_(_x(L) * 2, 0.5).addcmul_(_x(L), _x(L)).tolist(),
    "diagonal": lambda L: L.zeros(4, 2).fill_diagonal_(3, wrap=True).tolist(),
    "channels last of a matrix": lambda L: _x(L).contiguous(memory_format=L.channels_last),
}


@pytest.mark.parametrize("name", FACTS)
def test_answers_are_pytorchs(name):
    check_answer(FACTS[name])


def test_a_number_turned_is_itself():
    """PyTorch says the same of it, once in a process."""
    x = ag.tensor(1.0, requires_grad=True)
    with pytest.warns(UserWarning, match=r"Tensor\.mT is deprecated on 0-D tensors"):
        assert x.mT is x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = torch.tensor(1.0, requires_grad=True)
        assert theirs.mT is theirs
