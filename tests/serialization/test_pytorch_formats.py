"""Both formats of PyTorch's files, with all that a state dict may hold; damaged ones, too."""

import collections
import gzip
import io
import pickle
import struct

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.serialization import load

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "complex128",
    "uint16",
    "uint32",
    "uint64",
]
OPTIMIZERS = [
    "SGD",
    "Adam",
    "AdamW",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Adamax",
    "NAdam",
    "RAdam",
    "Rprop",
    "ASGD",
    "LBFGS",
    "Adafactor",
]
#: For each format, whether it is the one from before 1.6.
FORMATS = pytest.mark.parametrize("old", [False, True], ids=["zip", "old"])


def file_of(value, old, **kwargs):
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=not old, **kwargs)
    file.seek(0)
    return file


def same(mine, other):
    """Raise unless what was loaded is what was saved."""
    if isinstance(other, torch.Tensor):
        assert isinstance(mine, ag.nn.Parameter) == isinstance(other, torch.nn.Parameter)
        assert mine.dtype.name == str(other.dtype).rpartition(".")[2]
        assert mine.requires_grad == other.requires_grad
        assert mine.stride() == other.stride()
        exact = (torch.float64, "float64") if other.dtype == torch.bfloat16 else None
        if exact:
            mine, other = mine.to(exact[1]), other.to(exact[0])
        other = other.detach().resolve_conj().resolve_neg()
        np.testing.assert_array_equal(mine.detach().numpy(), other.numpy())
    elif isinstance(other, torch.dtype):
        assert mine.name == str(other).rpartition(".")[2]
    elif isinstance(other, torch.device):
        assert mine is ag.device(str(other))
    elif isinstance(other, dict):
        assert list(mine) == list(other)
        assert isinstance(mine, collections.OrderedDict) == isinstance(
            other, collections.OrderedDict
        )
        for key, value in other.items():
            same(mine[key], value)
    elif isinstance(other, (list, tuple)):
        assert len(mine) == len(other)
        for a, b in zip(mine, other, strict=True):
            same(a, b)
    else:
        assert mine == other
        assert type(mine) is type(other)


def values():
    x = torch.arange(12.0)
    lazy = torch.view_as_complex(x.view(2, 3, 2))
    return {
        "views": {"a": x[2:8:2], "b": x.view(3, 4).T, "c": x[:1].expand(4), "d": x[:0]},
        "parameters": [torch.nn.Parameter(x), torch.nn.Parameter(x.clone(), requires_grad=False)],
        "gradients": x.clone().requires_grad_(),
        "lazy": [lazy.conj(), lazy.mH, torch._neg_view(x.clone()), lazy.conj().requires_grad_()],
        "nested": {"a": [1, (2.5, "ž", None, True)], 3: {"b": [torch.tensor(3.0)]}},
        "numbers": [2**100, -(2**70), float("inf"), 1 + 2j, -1, 255, 65536],
        "plain": [b"bytes", b"", {1, "a"}, torch.float32, torch.bfloat16, torch.Size([2, 3])],
        "devices": [torch.device("cpu")],
        "model": torch.nn.BatchNorm1d(2).state_dict(),
        "schedule": torch.optim.lr_scheduler.StepLR(torch.optim.SGD([x]), 3).state_dict(),
        "counts": torch.optim.lr_scheduler.MultiStepLR(torch.optim.SGD([x]), [3, 3]).state_dict(),
    }


@FORMATS
@pytest.mark.parametrize("name", list(values()))
def test_what_state_dicts_hold_is_read(name, old):
    value = values()[name]
    same(load(file_of(value, old)), value)


@FORMATS
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_read(dtype, old):
    value = [(torch.arange(6) % 3).to(getattr(torch, dtype)).reshape(2, 3).T]
    same(load(file_of(value, old)), value)


@FORMATS
def test_memory_is_shared_as_it_was(old):
    x = torch.arange(6.0)
    a, b = load(file_of([x, x[3:]], old))
    a[4] = 7.0
    assert b.tolist() == [3.0, 7.0, 5.0]


@FORMATS
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimisers_go_on_from_pytorchs_files(name, old):
    """Three steps there, two here and there."""

    def steps(library, p, optimizer, count):
        def closure():
            optimizer.zero_grad()
            loss = ((p - 1.0) ** 4).sum()
            loss.backward()
            return loss

        for _ in range(count):
            if name != "LBFGS":
                closure()
            optimizer.step(closure)

    options = {"lr": 0.1} | ({"momentum": 0.9} if name == "SGD" else {})
    theirs = torch.linspace(-1.0, 0.5, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()
    optimizer = getattr(torch.optim, name)([theirs], **options)
    steps(torch, theirs, optimizer, 3)
    stored = load(file_of({"p": theirs, "o": optimizer.state_dict()}, old))
    ours = stored["p"]
    mine = getattr(ag.optim, name)([ours], lr=1.0)
    mine.load_state_dict(stored["o"])
    steps(torch, theirs, optimizer, 2)
    steps(ag, ours, mine, 2)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@FORMATS
def test_newer_pickles_are_read(protocol, old):
    value = {"a": torch.ones(2), "b": [b"x", b""], "c": ("d", 2.5), "e": {1, "f"}}
    same(load(file_of(value, old, pickle_protocol=protocol)), value)


@FORMATS
@pytest.mark.parametrize(
    "value",
    [
        torch.nn.ReLU(),
        np.ones(2),
        collections.defaultdict(list),
        slice(1, 2),
        {(1, 2): 3},
        torch.ones(2).untyped_storage(),
        torch.eye(2).to_sparse(),
        torch.ones(2).to(torch.float8_e4m3fn),
    ],
    ids=["module", "array", "defaultdict", "slice", "key", "storage", "sparse", "float8"],
)
def test_everything_else_is_refused(value, old):
    with pytest.raises(pickle.UnpicklingError, match=r"load: (?!the file's pickle is damaged)"):
        load(file_of([value], old))


def test_old_files_that_end_early():
    data = file_of({"a": torch.arange(5.0), "b": torch.ones(2)}, True).getvalue()
    for end in range(len(data)):
        with pytest.raises((pickle.UnpicklingError, RuntimeError), match="load: "):
            load(io.BytesIO(data[:end]))


def test_old_files_whose_sizes_lie():
    data = file_of(torch.arange(5.0), True).getvalue()
    count = struct.pack("<q", 5)
    place = data.rindex(count)
    for wrong in (4, 6, -1, 2**62):
        lying = data[:place] + struct.pack("<q", wrong) + data[place + 8 :]
        with pytest.raises(pickle.UnpicklingError, match="another size"):
            load(io.BytesIO(lying))
    inside = data.index(b"K\x05")
    for wrong in (b"K\x04", b"J\xff\xff\xff\x7f", b"\x8a\x08" + struct.pack("<q", 2**62)):
        with pytest.raises(pickle.UnpicklingError, match="load: "):
            load(io.BytesIO(data[:inside] + wrong + data[inside + 2 :]))


@pytest.mark.parametrize("seed", range(5))
def test_damage_to_old_files_never_does_more_than_raise(seed):
    data = file_of({"a": torch.arange(5.0), "b": [1, torch.ones(2)]}, True).getvalue()
    random = np.random.default_rng(seed)
    for _ in range(60):
        damaged = bytearray(data)
        for place in random.integers(0, len(damaged), size=random.integers(1, 4)):
            damaged[place] = random.integers(0, 256)
        try:
            load(io.BytesIO(damaged))
        except (pickle.UnpicklingError, RuntimeError):
            continue


@FORMATS
def test_whole_modules_are_refused_by_name(old):
    """They could only be made by code that the file names."""
    with pytest.raises(
        pickle.UnpicklingError, match=r"asks for torch\.nn\..*Linear, .*Save a state dict"
    ):
        load(file_of(torch.nn.Linear(1, 1), old))
    with pytest.raises(TypeError, match=r"object of type Linear: .*Save its state_dict\(\)"):
        ag.save(ag.nn.Linear(1, 1), io.BytesIO())


@pytest.mark.parametrize("dtype", DTYPES)
def test_pytorch_reads_what_asyncgrad_wrote(dtype):
    """A view, its base and the dtype; PyTorch has no storage types of unsigned integers."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    file = io.BytesIO()
    base = ag.ones(2, 3, dtype=getattr(ag, dtype))
    ag.save([base[:, 1:], base, base.dtype], file)
    for T in (torch, ag):
        file.seek(0)
        view, whole, kind = T.load(file)
        whole[:, 1] = 0
        assert view.tolist() == [[0, 1], [0, 1]]
        assert kind == whole.dtype == getattr(T, dtype)


@FORMATS
@pytest.mark.parametrize("persistent", [False, True])
def test_buffers_and_attributes_of_parameters_are_read_and_written(old, persistent):
    """Also by PyTorch: a `Buffer` is a tensor with attributes there."""
    parameters = []
    for library in (torch, ag):
        parameter = library.nn.Parameter(library.arange(3.0))
        parameter.shards = [1, "two"]
        parameters.append(parameter)
    given, ours = (
        {"p": parameter, "b": library.nn.Buffer(library.ones(2), persistent=persistent)}
        for library, parameter in zip((torch, ag), parameters, strict=True)
    )
    written = io.BytesIO()
    ag.save(ours, written)
    for library, read in (
        (ag, load(file_of(given, old))),
        (ag, load(io.BytesIO(written.getvalue()))),
        (torch, torch.load(io.BytesIO(written.getvalue()))),
    ):
        assert isinstance(read["p"], library.nn.Parameter)
        assert read["p"].shards == [1, "two"]
        assert isinstance(read["b"], library.nn.Buffer)
        assert read["b"].persistent is persistent
        assert read["b"].tolist() == [1.0, 1.0]


def test_a_tensor_of_an_unknown_class_is_refused():
    tensor = torch.ones(2)
    tensor.label = "mine"
    with pytest.raises(pickle.UnpicklingError, match="with attributes"):
        load(file_of(tensor, False))


def test_what_is_written_through_gzip_is_read_by_both(tmp_path):
    """A stream that can't go back."""
    with gzip.open(tmp_path / "net.pt.gz", "wb") as file:
        ag.save({"a": ag.ones(2, 3)}, file)
    for T in (torch, ag):
        with gzip.open(tmp_path / "net.pt.gz") as file:
            assert T.load(file)["a"].shape == (2, 3)
