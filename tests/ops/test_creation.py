"""Tensors from data and from shapes, and questions about dtypes, beside PyTorch."""

import math
import operator

import numpy as np
import oracle
import pytest

import asyncgrad as ag
from asyncgrad.ops import bfloat16

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

INF, NAN = math.inf, math.nan
#: Names of PyTorch's `op_db` whose values are decided.
NAMES = (
    "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "arange", "linspace",
    "logspace", "eye", "tril_indices", "triu_indices", "new_zeros", "new_ones", "new_full",
    "complex", "polar", "fill", "meshgrid", "scalar_tensor",
)  # fmt: skip
UNINITIALISED = ("empty", "empty_like", "new_empty", "empty_strided")


@pytest.mark.parametrize("name", NAMES)
def test_function_matches_pytorch(name):
    skip = {
        "there is no complex32": lambda s: getattr(s.input, "dtype", None) == torch.float16,
        "strides can't say more": lambda s: s.kwargs.get("layout", torch.strided) != torch.strided,
    }
    dtypes = ("float64", "complex64", "int64") if name == "logspace" else oracle.DTYPES
    oracle.check(name, dtypes=dtypes, skip=skip, awkward=name != "new_full", limit=8)


@pytest.mark.parametrize("name", NAMES)
def test_function_matches_pytorch_in_small_dtypes(name):
    dtypes = ("uint8", "int8", "int32", "float16", "bfloat16")
    if name in {"complex", "polar"}:
        pytest.skip("these take float32 and float64 alone")
    if name == "logspace":
        # PyTorch needs seconds to make its samples.
        dtypes = ("int8", "bfloat16")
    oracle.check(name, dtypes=dtypes, order=0, limit=8, tolerance=8e-3)


@pytest.mark.parametrize("name", UNINITIALISED)
def test_uninitialised_tensor_has_pytorchs_shape_and_strides(name):
    (op,) = oracle.infos(name)
    for dtype in ("float64", "int64", "bool"):
        for sample in oracle.samples(op, dtype):
            twins = oracle.Twins()
            args, kwargs = twins.of([sample.input, *sample.args]), twins.of(sample.kwargs)
            expected = op.op(*args[0], **kwargs[0])
            found = (oracle.resolve(name))(*args[1], **kwargs[1])
            assert found.dtype == oracle.dtype_name(expected.dtype)
            assert found.shape == tuple(expected.shape)
            size = found.dtype.itemsize
            if found.numel() > 1:
                assert [n // size for n in found._array.strides] == list(expected.stride())


@pytest.mark.parametrize("name", [n for n in (*NAMES, *UNINITIALISED) if oracle.has_errors(n)])
def test_refuses_what_pytorch_refuses(name):
    assert oracle.check_errors(name) > 0


# -- arguments ------------------------------------------------------------------------------------

CALLS = {
    "detach(t([1.], requires_grad=True))": lambda m, t: m.detach(t([1.0], requires_grad=True)),
    "detach([1.])": lambda m, t: m.detach([1.0]),
    "zeros()": lambda m, t: m.zeros(),
    "zeros(2,3)": lambda m, t: m.zeros(2, 3),
    "zeros((2,3))": lambda m, t: m.zeros((2, 3)),
    "zeros(size=(2,3))": lambda m, t: m.zeros(size=(2, 3)),
    "zeros([])": lambda m, t: m.zeros([]),
    "zeros(2,dtype=int64,requires_grad=True)": lambda m, t: m.zeros(
        2, dtype=m.int64, requires_grad=True
    ),
    "zeros(-2)": lambda m, t: m.zeros(-2),
    "zeros(2.5)": lambda m, t: m.zeros(2.5),
    "zeros((2,2.5))": lambda m, t: m.zeros((2, 2.5)),
    "zeros(t(2))": lambda m, t: m.zeros(t(2)),
    "zeros(2,device=cpu)": lambda m, t: m.zeros(2, device="cpu"),
    "zeros(2,device=foo)": lambda m, t: m.zeros(2, device="foo"),
    "zeros(2,dtype=float)": lambda m, t: m.zeros(2, dtype=float),
    "zeros(2,dtype=int)": lambda m, t: m.zeros(2, dtype=int),
    "full((2,),3)": lambda m, t: m.full((2,), 3),
    "full((2,),3.)": lambda m, t: m.full((2,), 3.0),
    "full((2,),True)": lambda m, t: m.full((2,), True),
    "full((2,),1j)": lambda m, t: m.full((2,), 1j),
    "full(2,3.)": lambda m, t: m.full(2, 3.0),
    "full((2,),t(3.))": lambda m, t: m.full((2,), t(3.0)),
    "full((2,),t([3.]))": lambda m, t: m.full((2,), t([3.0])),
    "full((2,),300,dtype=uint8)": lambda m, t: m.full((2,), 300, dtype=m.uint8),
    "full((2,),3.7,dtype=int64)": lambda m, t: m.full((2,), 3.7, dtype=m.int64),
    "full((2,),3,requires_grad=True)": lambda m, t: m.full((2,), 3, requires_grad=True),
    "full(size=(2,),fill_value=3)": lambda m, t: m.full(size=(2,), fill_value=3),
    "zeros_like([1.])": lambda m, t: m.zeros_like([1.0]),
    "zeros_like(t([1,2]))": lambda m, t: m.zeros_like(t([1, 2])),
    "zeros_like(t([1,2]),dtype=float64,requires_grad=True)": lambda m, t: m.zeros_like(
        t([1, 2]), dtype=m.float64, requires_grad=True
    ),
    "full_like(t([1,2]),3.7)": lambda m, t: m.full_like(t([1, 2]), 3.7),
    "full_like(t([1.,2]),3)": lambda m, t: m.full_like(t([1.0, 2]), 3),
    "full_like(t([1.,2]),3,dtype=int64)": lambda m, t: m.full_like(t([1.0, 2]), 3, dtype=m.int64),
    "full_like(t([1.,2]),3j)": lambda m, t: m.full_like(t([1.0, 2]), 3j),
    "full_like(t([1,2],dtype=uint8),300)": lambda m, t: m.full_like(t([1, 2], dtype=m.uint8), 300),
    "full_like(t([True]),3)": lambda m, t: m.full_like(t([True]), 3),
    "arange(5)": lambda m, t: m.arange(5),
    "arange(5.)": lambda m, t: m.arange(5.0),
    "arange(1,5)": lambda m, t: m.arange(1, 5),
    "arange(1,5,0.5)": lambda m, t: m.arange(1, 5, 0.5),
    "arange(1,5,-1)": lambda m, t: m.arange(1, 5, -1),
    "arange(5,1,-2)": lambda m, t: m.arange(5, 1, -2),
    "arange(5,1)": lambda m, t: m.arange(5, 1),
    "arange(0,5,0)": lambda m, t: m.arange(0, 5, 0),
    "arange(0,INF)": lambda m, t: m.arange(0, INF),
    "arange(0,3,INF)": lambda m, t: m.arange(0, 3, INF),
    "arange(0,NAN)": lambda m, t: m.arange(0, NAN),
    "arange(True)": lambda m, t: m.arange(True),
    "arange(3,dtype=float64)": lambda m, t: m.arange(3, dtype=m.float64),
    "arange(0.5,3.5,dtype=int64)": lambda m, t: m.arange(0.5, 3.5, dtype=m.int64),
    "arange(0,3,0.5,dtype=int64)": lambda m, t: m.arange(0, 3, 0.5, dtype=m.int64),
    "arange(3,requires_grad=True)": lambda m, t: m.arange(3, requires_grad=True),
    "arange(3.,requires_grad=True)": lambda m, t: m.arange(3.0, requires_grad=True),
    "arange(end=3)": lambda m, t: m.arange(end=3),
    "arange(start=1,end=3)": lambda m, t: m.arange(start=1, end=3),
    "arange(t(1),t(4))": lambda m, t: m.arange(t(1), t(4)),
    "arange(t(1.),4)": lambda m, t: m.arange(t(1.0), 4),
    "arange(0,2,dtype=bool)": lambda m, t: m.arange(0, 2, dtype=m.bool),
    "arange(0,3,dtype=bool)": lambda m, t: m.arange(0, 3, dtype=m.bool),
    "arange(3,dtype=complex64)": lambda m, t: m.arange(3, dtype=m.complex64),
    "arange(1j)": lambda m, t: m.arange(1j),
    "arange(a)": lambda m, t: m.arange("a"),
    "arange(1,2,3,4)": lambda m, t: m.arange(1, 2, 3, 4),
    "arange(0,10,3,dtype=float16)": lambda m, t: m.arange(0, 10, 3, dtype=m.float16),
    "linspace(0,1,5)": lambda m, t: m.linspace(0, 1, 5),
    "linspace(0,1,1)": lambda m, t: m.linspace(0, 1, 1),
    "linspace(0,1,0)": lambda m, t: m.linspace(0, 1, 0),
    "linspace(0,1,-1)": lambda m, t: m.linspace(0, 1, -1),
    "linspace(0,1)": lambda m, t: m.linspace(0, 1),
    "linspace(0,10,5,dtype=int64)": lambda m, t: m.linspace(0, 10, 5, dtype=m.int64),
    "linspace(0,10,4,dtype=int64)": lambda m, t: m.linspace(0, 10, 4, dtype=m.int64),
    "linspace(10,0,4,dtype=int64)": lambda m, t: m.linspace(10, 0, 4, dtype=m.int64),
    "linspace(-5,5,4,dtype=int64)": lambda m, t: m.linspace(-5, 5, 4, dtype=m.int64),
    "linspace(0,1j,3)": lambda m, t: m.linspace(0, 1j, 3),
    "linspace(0,1j,3,dtype=float32)": lambda m, t: m.linspace(0, 1j, 3, dtype=m.float32),
    "linspace(t(0.),t(1.),3)": lambda m, t: m.linspace(t(0.0), t(1.0), 3),
    "linspace(t([0.]),t(1.),3)": lambda m, t: m.linspace(t([0.0]), t(1.0), 3),
    "linspace(0,1,3,requires_grad=True)": lambda m, t: m.linspace(0, 1, 3, requires_grad=True),
    "linspace(0,1,3,dtype=bool)": lambda m, t: m.linspace(0, 1, 3, dtype=m.bool),
    "linspace(0,1,2.5)": lambda m, t: m.linspace(0, 1, 2.5),
    "linspace(start=0,end=1,steps=3)": lambda m, t: m.linspace(start=0, end=1, steps=3),
    "linspace(0,1,3,dtype=float16)": lambda m, t: m.linspace(0, 1, 3, dtype=m.float16),
    "logspace(0,1,3)": lambda m, t: m.logspace(0, 1, 3),
    "logspace(0,1,3,2)": lambda m, t: m.logspace(0, 1, 3, 2),
    "logspace(0,1,3,base=2)": lambda m, t: m.logspace(0, 1, 3, base=2),
    "logspace(0,3,4,dtype=int64)": lambda m, t: m.logspace(0, 3, 4, dtype=m.int64),
    "logspace(0,1,1)": lambda m, t: m.logspace(0, 1, 1),
    "logspace(0,1,0)": lambda m, t: m.logspace(0, 1, 0),
    "logspace(0,1j,3)": lambda m, t: m.logspace(0, 1j, 3),
    "logspace(0,1,-1)": lambda m, t: m.logspace(0, 1, -1),
    "logspace(0,1,3,-2.)": lambda m, t: m.logspace(0, 1, 3, -2.0),
    "eye(2)": lambda m, t: m.eye(2),
    "eye(2,3)": lambda m, t: m.eye(2, 3),
    "eye(2,m=3)": lambda m, t: m.eye(2, m=3),
    "eye(-1)": lambda m, t: m.eye(-1),
    "eye(2,-1)": lambda m, t: m.eye(2, -1),
    "eye(0)": lambda m, t: m.eye(0),
    "eye(2.)": lambda m, t: m.eye(2.0),
    "eye(2,dtype=bool)": lambda m, t: m.eye(2, dtype=m.bool),
    "eye(2,requires_grad=True)": lambda m, t: m.eye(2, requires_grad=True),
    "tril_indices(3,3)": lambda m, t: m.tril_indices(3, 3),
    "tril_indices(3,4,1)": lambda m, t: m.tril_indices(3, 4, 1),
    "tril_indices(3,4,-1)": lambda m, t: m.tril_indices(3, 4, -1),
    "tril_indices(-1,3)": lambda m, t: m.tril_indices(-1, 3),
    "tril_indices(0,3)": lambda m, t: m.tril_indices(0, 3),
    "tril_indices(3,3,dtype=float32)": lambda m, t: m.tril_indices(3, 3, dtype=m.float32),
    "tril_indices(3,3,dtype=int32)": lambda m, t: m.tril_indices(3, 3, dtype=m.int32),
    "triu_indices(3,4,1)": lambda m, t: m.triu_indices(3, 4, 1),
    "triu_indices(3,4,offset=-1)": lambda m, t: m.triu_indices(3, 4, offset=-1),
    "tensor([1,2.])": lambda m, t: m.tensor([1, 2.0]),
    "tensor([True,False])": lambda m, t: m.tensor([True, False]),
    "tensor([True,2])": lambda m, t: m.tensor([True, 2]),
    "tensor([[1,2],[3]])": lambda m, t: m.tensor([[1, 2], [3]]),
    "tensor([])": lambda m, t: m.tensor([]),
    "tensor([[]])": lambda m, t: m.tensor([[]]),
    "tensor(a)": lambda m, t: m.tensor("a"),
    "tensor(None)": lambda m, t: m.tensor(None),
    "tensor([1,a])": lambda m, t: m.tensor([1, "a"]),
    "tensor(2**63)": lambda m, t: m.tensor(2**63),
    "tensor([2**63])": lambda m, t: m.tensor([2**63]),
    "tensor([2**63,1])": lambda m, t: m.tensor([2**63, 1]),
    "tensor([2**63,-1],dtype=int64)": lambda m, t: m.tensor([2**63, -1], dtype=m.int64),
    "tensor([2**63,1],dtype=uint8)": lambda m, t: m.tensor([2**63, 1], dtype=m.uint8),
    "tensor([2**63],dtype=uint8)": lambda m, t: m.tensor([2**63], dtype=m.uint8),
    "tensor([2**63,1],dtype=uint64)": lambda m, t: m.tensor([2**63, 1], dtype=m.uint64),
    "tensor([10**400],dtype=float32)": lambda m, t: m.tensor([10**400], dtype=m.float32),
    "tensor([1.5,10**400])": lambda m, t: m.tensor([1.5, 10**400]),
    "tensor([nan,2**64],dtype=int64)": lambda m, t: m.tensor([math.nan, 2**64], dtype=m.int64),
    "tensor([True],dtype=uint64)": lambda m, t: m.tensor([True], dtype=m.uint64),
    "tensor([2**64,1.5])": lambda m, t: m.tensor([2**64, 1.5]),
    "tensor([2**64,0],dtype=bool)": lambda m, t: m.tensor([2**64, 0], dtype=m.bool),
    "tensor(300,dtype=uint8)": lambda m, t: m.tensor(300, dtype=m.uint8),
    "tensor([300],dtype=uint8)": lambda m, t: m.tensor([300], dtype=m.uint8),
    "tensor([-1],dtype=uint8)": lambda m, t: m.tensor([-1], dtype=m.uint8),
    "tensor([1.5],dtype=int64)": lambda m, t: m.tensor([1.5], dtype=m.int64),
    "tensor([1j],dtype=float32)": lambda m, t: m.tensor([1j], dtype=m.float32),
    "tensor(1j,dtype=float32)": lambda m, t: m.tensor(1j, dtype=m.float32),
    "tensor([NAN],dtype=int64)": lambda m, t: m.tensor([NAN], dtype=m.int64),
    "tensor([t(1.),t(2.)])": lambda m, t: m.tensor([t(1.0), t(2.0)]),
    "tensor([t([1.]),t([2.])])": lambda m, t: m.tensor([t([1.0]), t([2.0])]),
    "tensor([t([1.,2])])": lambda m, t: m.tensor([t([1.0, 2])]),
    "tensor(t([1,2]))": lambda m, t: m.tensor(t([1, 2])),
    "tensor(t([1.,2],requires_grad=True))": lambda m, t: m.tensor(t([1.0, 2], requires_grad=True)),
    "tensor(range(3))": lambda m, t: m.tensor(range(3)),
    "tensor((1,(2)))": lambda m, t: m.tensor((1, (2))),
    "tensor({1,2})": lambda m, t: m.tensor({1, 2}),
    "tensor([1],requires_grad=True)": lambda m, t: m.tensor([1], requires_grad=True),
    "tensor([1.],requires_grad=True)": lambda m, t: m.tensor([1.0], requires_grad=True),
    "tensor([1e300])": lambda m, t: m.tensor([1e300]),
    "tensor(1e300)": lambda m, t: m.tensor(1e300),
    "tensor([1e300],dtype=float16)": lambda m, t: m.tensor([1e300], dtype=m.float16),
    "tensor(np.float64(3))": lambda m, t: m.tensor(np.float64(3)),
    "tensor(np.array([1.,2]))": lambda m, t: m.tensor(np.array([1.0, 2])),
    "tensor([np.float64(3)])": lambda m, t: m.tensor([np.float64(3)]),
    "tensor([np.array([1.,2])])": lambda m, t: m.tensor([np.array([1.0, 2])]),
    "tensor(np.float32(3))": lambda m, t: m.tensor(np.float32(3)),
    "tensor(np.array([a]))": lambda m, t: m.tensor(np.array(["a"])),
    "tensor(np.int32(3))": lambda m, t: m.tensor(np.int32(3)),
    "tensor([np.int32(3)])": lambda m, t: m.tensor([np.int32(3)]),
    "tensor([np.array([1,2],dtype=int32)])": lambda m, t: m.tensor(
        [np.array([1, 2], dtype="int32")]
    ),
    "tensor([1,2],device=cpu)": lambda m, t: m.tensor([1, 2], device="cpu"),
    "tensor([1,2],pin_memory=False)": lambda m, t: m.tensor([1, 2], pin_memory=False),
    "as_tensor([1,2.])": lambda m, t: m.as_tensor([1, 2.0]),
    "as_tensor(np.array([1.,2]))": lambda m, t: m.as_tensor(np.array([1.0, 2])),
    "as_tensor(t([1.,2]))": lambda m, t: m.as_tensor(t([1.0, 2])),
    "as_tensor(t([1.,2]),dtype=int64)": lambda m, t: m.as_tensor(t([1.0, 2]), dtype=m.int64),
    "as_tensor(3)": lambda m, t: m.as_tensor(3),
    "as_tensor(a)": lambda m, t: m.as_tensor("a"),
    "asarray([1,2])": lambda m, t: m.asarray([1, 2]),
    "asarray(np.array([1.]),copy=True)": lambda m, t: m.asarray(np.array([1.0]), copy=True),
    "asarray([1],copy=False)": lambda m, t: m.asarray([1], copy=False),
    "asarray(np.array([1.]),dtype=float32,copy=False)": lambda m, t: m.asarray(
        np.array([1.0]), dtype=m.float32, copy=False
    ),
    "asarray([1.],requires_grad=True)": lambda m, t: m.asarray([1.0], requires_grad=True),
    "asarray(t([1.],requires_grad=True))": lambda m, t: m.asarray(t([1.0], requires_grad=True)),
    "asarray(t([1.],requires_grad=True),requires_grad=True)": lambda m, t: m.asarray(
        t([1.0], requires_grad=True), requires_grad=True
    ),
    "asarray(t([1.],requires_grad=True)*2,requires_grad=True)": lambda m, t: m.asarray(
        t([1.0], requires_grad=True) * 2, requires_grad=True
    ),
    "asarray(t([1.],requires_grad=True)*2,requires_grad=False)": lambda m, t: m.asarray(
        t([1.0], requires_grad=True) * 2, requires_grad=False
    ),
    "asarray(b12345678,dtype=int32)": lambda m, t: m.asarray(b"12345678", dtype=m.int32),
    "asarray(3)": lambda m, t: m.asarray(3),
    "asarray(t([1.]),copy=True)": lambda m, t: m.asarray(t([1.0]), copy=True),
    "from_numpy([1])": lambda m, t: m.from_numpy([1]),
    "from_numpy(np.float64(3))": lambda m, t: m.from_numpy(np.float64(3)),
    "from_numpy(np.array([a]))": lambda m, t: m.from_numpy(np.array(["a"])),
    "scalar_tensor(3)": lambda m, t: m.scalar_tensor(3),
    "scalar_tensor(3,dtype=int64)": lambda m, t: m.scalar_tensor(3, dtype=m.int64),
    "complex(t([1.]),t([2.]))": lambda m, t: m.complex(t([1.0]), t([2.0])),
    "complex(t([1.]),t([2.],dtype=float64))": lambda m, t: m.complex(
        t([1.0]), t([2.0], dtype=m.float64)
    ),
    "complex(t([1]),t([2]))": lambda m, t: m.complex(t([1]), t([2])),
    "complex(t([1.],requires_grad=True),t([2.]))": lambda m, t: m.complex(
        t([1.0], requires_grad=True), t([2.0])
    ),
    "complex(t([1.,2]),t([[2.],[3]]))": lambda m, t: m.complex(t([1.0, 2]), t([[2.0], [3]])),
    "polar(t([1.]),t([2.]))": lambda m, t: m.polar(t([1.0]), t([2.0])),
    "polar(t([1]),t([2]))": lambda m, t: m.polar(t([1]), t([2])),
    "polar(t([1.],requires_grad=True),t([2.]))": lambda m, t: m.polar(
        t([1.0], requires_grad=True), t([2.0])
    ),
    "meshgrid(t([1,2]),t([3,4,5]),indexing=ij)": lambda m, t: m.meshgrid(
        t([1, 2]), t([3, 4, 5]), indexing="ij"
    ),
    "meshgrid(t([1,2]),t([3,4,5]))": lambda m, t: m.meshgrid(t([1, 2]), t([3, 4, 5])),
    "meshgrid([t([1,2]),t([3,4,5])],indexing=xy)": lambda m, t: m.meshgrid(
        [t([1, 2]), t([3, 4, 5])], indexing="xy"
    ),
    "meshgrid(t([1,2]),t([3.,4,5]),indexing=ij)": lambda m, t: m.meshgrid(
        t([1, 2]), t([3.0, 4, 5]), indexing="ij"
    ),
    "meshgrid(t([[1,2]]),t([3,4,5]),indexing=ij)": lambda m, t: m.meshgrid(
        t([[1, 2]]), t([3, 4, 5]), indexing="ij"
    ),
    "meshgrid(t(1),t([3,4,5]),indexing=ij)": lambda m, t: m.meshgrid(
        t(1), t([3, 4, 5]), indexing="ij"
    ),
    "meshgrid(indexing=ij)": lambda m, t: m.meshgrid(indexing="ij"),
    "meshgrid(t([1,2]),t([3]),indexing=zz)": lambda m, t: m.meshgrid(
        t([1, 2]), t([3]), indexing="zz"
    ),
    "t([1,2]).new_zeros(2,3)": lambda m, t: t([1, 2]).new_zeros(2, 3),
    "t([1,2]).new_zeros((2,3),dtype=float32,requires_grad=True)": lambda m, t: t([1, 2]).new_zeros(
        (2, 3), dtype=m.float32, requires_grad=True
    ),
    "t([1,2]).new_ones(2)": lambda m, t: t([1, 2]).new_ones(2),
    "t([1,2]).new_full((2,),3.7)": lambda m, t: t([1, 2]).new_full((2,), 3.7),
    "t([1,2]).new_full((2,),3j)": lambda m, t: t([1, 2]).new_full((2,), 3j),
    "t([1,2]).new_tensor([1.5])": lambda m, t: t([1, 2]).new_tensor([1.5]),
    "t([1.,2]).new_tensor([1])": lambda m, t: t([1.0, 2]).new_tensor([1]),
    "t([1.,2]).new_tensor([1],requires_grad=True)": lambda m, t: t([1.0, 2]).new_tensor(
        [1], requires_grad=True
    ),
    "t([1.,2]).new_tensor(t([1]))": lambda m, t: t([1.0, 2]).new_tensor(t([1])),
    "t([1,2]).new_tensor([1.5],dtype=float64)": lambda m, t: t([1, 2]).new_tensor(
        [1.5], dtype=m.float64
    ),
    "can_cast(1,2)": lambda m, t: m.can_cast(1, 2),
    "result_type(t([1]),1.)": lambda m, t: m.result_type(t([1]), 1.0),
    "result_type(t([1]),t(1.))": lambda m, t: m.result_type(t([1]), t(1.0)),
    "result_type(1,1.)": lambda m, t: m.result_type(1, 1.0),
    "result_type([1],1.)": lambda m, t: m.result_type([1], 1.0),
    "is_floating_point(t(1))": lambda m, t: m.is_floating_point(t(1)),
    "is_complex(t(1j))": lambda m, t: m.is_complex(t(1j)),
    "numel(t([1,2]))": lambda m, t: m.numel(t([1, 2])),
    "is_nonzero(t([1]))": lambda m, t: m.is_nonzero(t([1])),
    "is_nonzero(t([1,2]))": lambda m, t: m.is_nonzero(t([1, 2])),
    "is_nonzero(t([]))": lambda m, t: m.is_nonzero(t([])),
    "fill(t([1,2]),3)": lambda m, t: m.fill(t([1, 2]), 3),
    "fill(t([1.,2],requires_grad=True),3)": lambda m, t: m.fill(t([1.0, 2], requires_grad=True), 3),
    "fill(t([1.,2]),t(3.,requires_grad=True))": lambda m, t: m.fill(
        t([1.0, 2]), t(3.0, requires_grad=True)
    ),
    "fill(t([1.,2]),t([3.]))": lambda m, t: m.fill(t([1.0, 2]), t([3.0])),
    "fill(t([1,2]),3.5)": lambda m, t: m.fill(t([1, 2]), 3.5),
    "float(t([1.,2]))": lambda m, t: float(t([1.0, 2])),
    "int(t([1.,2]))": lambda m, t: int(t([1.0, 2])),
    "float(t([1.]))": lambda m, t: float(t([1.0])),
    "float(t(1j))": lambda m, t: float(t(1j)),
    "int(t(1.5))": lambda m, t: int(t(1.5)),
    "complex(t(1.5))": lambda m, t: complex(t(1.5)),
    "bool(t([]))": lambda m, t: bool(t([])),
    "t([1.,2]).item()": lambda m, t: t([1.0, 2]).item(),
    "t([1.],requires_grad=True).numpy()": lambda m, t: t([1.0], requires_grad=True).numpy(),
    "t([1.],dtype=bfloat16).tolist()": lambda m, t: t([1.0], dtype=m.bfloat16).tolist(),
    "operator.index(t([1]))": lambda m, t: operator.index(t([1])),
    "operator.index(t(1.5))": lambda m, t: operator.index(t(1.5)),
    "operator.index(t([1,2]))": lambda m, t: operator.index(t([1, 2])),
    "operator.index(t(True))": lambda m, t: operator.index(t(True)),
    "[1,2,3][t(1)]": lambda m, t: [1, 2, 3][t(1)],
}


@pytest.mark.parametrize("call", CALLS)
def test_arguments_mean_what_they_mean_to_pytorch(call):
    oracle.check_call(CALLS[call], 2e-6)


# -- memory ---------------------------------------------------------------------------------------


def test_what_shares_memory_and_what_does_not():
    array = np.ones(3)
    for share in (ag.from_numpy, ag.as_tensor, ag.asarray, lambda a: ag.asarray(a, copy=False)):
        assert np.shares_memory(share(array)._array, array)
    for copy in (ag.tensor, ag.ones(1).new_tensor, lambda a: ag.asarray(a, copy=True)):
        assert not np.shares_memory(copy(array)._array, array)
    x = ag.ones(3, requires_grad=True)
    assert ag.as_tensor(x) is x
    assert ag.asarray(x) is x
    buffer = bytearray(8)
    ag.asarray(buffer, dtype=ag.float64).fill_(1)
    assert buffer == np.float64(1).tobytes()
    assert not np.shares_memory(ag.tensor(x)._array, x._array)
    assert not ag.tensor(x).requires_grad


def test_conversion_by_as_tensor_is_recorded():
    x = ag.ones(3, requires_grad=True)
    ag.as_tensor(x, dtype=ag.float64).sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_refusals_of_arrays():
    with pytest.raises(ValueError, match="byte order"):
        ag.from_numpy(np.ones(2, ">f4"))
    with pytest.raises(TypeError, match="<U1"):
        ag.tensor(np.array(["a"]))
    with pytest.raises(TypeError, match="object"):
        ag.from_numpy(np.array([None]))
    with pytest.raises(ValueError, match="alias"):
        ag.asarray(ag.ones(2), dtype=ag.float64, copy=False)


def test_a_refused_filler_leaves_no_trace():
    with pytest.raises(RuntimeError, match="gradients"):
        ag.zeros(2, dtype=ag.int64, requires_grad=True)
    with pytest.raises(RuntimeError, match="overflow"):
        ag.full((2,), 300, dtype=ag.uint8)


def test_tensors_of_inference_mode_are_inference_tensors():
    with ag.inference_mode():
        made = [ag.ones(2), ag.tensor([1.0]), ag.rand(2), ag.arange(3), ag.zeros_like(ag.ones(1))]
    assert all(x.is_inference() for x in made)
    assert not ag.ones(2).is_inference()


# -- dtypes ---------------------------------------------------------------------------------------

FLOATING = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", *FLOATING)


@pytest.mark.parametrize("name", FLOATING)
def test_finfo_is_pytorchs(name):
    ours, theirs = ag.finfo(getattr(ag, name)), torch.finfo(getattr(torch, name))
    for field in ("bits", "dtype", "eps", "max", "min", "resolution", "smallest_normal", "tiny"):
        assert getattr(ours, field) == getattr(theirs, field)


def test_infos_of_default_and_integers():
    assert ag.finfo().dtype == "float32"
    assert ag.finfo().eps == torch.finfo().eps
    for name in ("uint8", "int8", "int16", "int32", "int64"):
        ours, theirs = ag.iinfo(getattr(ag, name)), torch.iinfo(getattr(torch, name))
        assert (ours.bits, ours.min, ours.max, ours.dtype) == (
            theirs.bits, theirs.min, theirs.max, theirs.dtype,
        )  # fmt: skip
    assert repr(ag.iinfo(ag.int8)) == "iinfo(min=-128, max=127, dtype=int8)"
    assert "eps=1.19209e-07" in repr(ag.finfo())


@pytest.mark.parametrize("first", DTYPES)
def test_promotion_tables_are_pytorchs(first):
    one, theirs = getattr(ag, first), getattr(torch, first)
    for second in DTYPES:
        two, other = getattr(ag, second), getattr(torch, second)
        assert ag.can_cast(one, two) == torch.can_cast(theirs, other)
        promoted = oracle.dtype_name(torch.promote_types(theirs, other))
        if promoted != "complex32":
            assert ag.promote_types(one, two) == promoted
            for a, b in (((2,), (2,)), ((), (2,)), ((2,), ()), ((), ())):
                wanted = torch.result_type(torch.ones(a, dtype=theirs), torch.ones(b, dtype=other))
                if wanted != torch.complex32:
                    found = ag.result_type(ag.ones(a, dtype=one), ag.ones(b, dtype=two))
                    assert found == oracle.dtype_name(wanted)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64"])
def test_default_dtype_is_that_of_python_floats(name):
    ag.set_default_dtype(getattr(ag, name))
    torch.set_default_dtype(getattr(torch, name))
    try:
        assert ag.get_default_dtype() == name
        for function in (
            lambda m: m.tensor([1.0]),
            lambda m: m.zeros(2),
            lambda m: m.rand(2) * 0,
            lambda m: m.arange(2.0),
            lambda m: m.tensor([1]) / 2,
            lambda m: m.linspace(0, 1, 3),
        ):
            oracle.compare(function(torch), function(ag))
    finally:
        ag.set_default_dtype(ag.float32)
        torch.set_default_dtype(torch.float32)


def test_without_its_package_bfloat16_names_the_extra(monkeypatch):
    monkeypatch.setattr(bfloat16, "BFLOAT16", None)
    with pytest.raises(ImportError, match=r"asyncgrad\[bfloat16\]"):
        ag.bfloat16  # noqa: B018
    with pytest.raises(ImportError, match=r"asyncgrad\[bfloat16\]"):
        ag.ones(1).bfloat16()


def test_a_list_that_holds_itself_is_refused():
    """It has no innermost element, for which one may look for ever."""
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError, match="too many dimensions 'list'"):
        ag.tensor(endless)
    deep = 1.0
    for _ in range(64):
        deep = [deep]
    assert ag.tensor(deep).ndim == 64


@pytest.mark.parametrize("make", [
    lambda T, out: T.arange(4, out=out), lambda T, out: T.linspace(0, 3, 4, out=out),
    lambda T, out: T.logspace(0, 3, 4, out=out),
])  # fmt: skip
def test_numbers_in_a_row_are_written_into_any_shape(make):
    for part in (lambda T: T.zeros(2, 2), lambda T: T.zeros(2, 3).narrow(1, 1, 2)):
        oracle.compare(make(torch, part(torch)), make(ag, part(ag)))


def test_bounds_of_lines_of_integers_are_converted_first():
    torch = pytest.importorskip("torch")
    for bounds in ((-3, 3, 4), (0, 255, 4), (2.9, 9.9, 3)):
        assert (
            ag.linspace(*bounds, dtype=ag.uint8).tolist()
            == torch.linspace(*bounds, dtype=torch.uint8).tolist()
        )
