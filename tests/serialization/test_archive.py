"""Files of PyTorch's format: both ways, and hostile ones."""

import contextlib
import io
import pickle
import struct
import sys
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.serialization import load, save

DTYPES = (
    "float64",
    "float32",
    "float16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "complex128",
)


def written(value):
    file = io.BytesIO()
    save(value, file)
    return file


def entries(file):
    with zipfile.ZipFile(file) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def packed(contents, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return file


def with_pickle(data, **storages):
    """An archive with a pickle of one's own."""
    return packed(
        {
            "archive/data.pkl": data,
            "archive/byteorder": b"little",
            **{f"archive/data/{key[1:]}": value for key, value in storages.items()},
        }
    )


def assert_same(mine, other):
    assert type(mine) is type(other)
    if isinstance(mine, ag.Tensor):
        assert mine.dtype == other.dtype
        assert mine.requires_grad == other.requires_grad
        np.testing.assert_array_equal(mine.detach().numpy(), other.detach().numpy())
    elif isinstance(mine, dict):
        assert [*mine] == [*other]
        for key in mine:
            assert_same(mine[key], other[key])
    elif isinstance(mine, (list, tuple)):
        assert len(mine) == len(other)
        for a, b in zip(mine, other, strict=True):
            assert_same(a, b)
    else:
        assert mine == other


def test_everything_comes_back():
    value = {
        "tensor": ag.tensor([[1.0, 2.0]], requires_grad=True),
        "parameter": nn.Parameter(ag.ones(2), requires_grad=False),
        "numbers": [0, 1, -1, 255, 2**31, -(2**40), 2**200, 2.5, float("inf"), True, False, None],
        "nested": (1, ("é", [], {}, ()), "\udc80"),
        3: OrderedDict(a=ag.zeros(()), b=ag.zeros(0, 3)),
        "plain": [1 + 2j, b"ab\xff", b"", {1, "a", None}, set(), {}],
        "dtype": ag.float32,
        "size": ag.Size([2, 3]),
        "device": ag.device("cpu"),
        **{f"of {name}": ag.from_numpy(np.arange(4).astype(name)) for name in DTYPES},
    }
    assert_same(load(written(value)), value)


def test_paths_and_files(tmp_path):
    path = tmp_path / "weights.pt"
    save([ag.ones(2)], path)
    assert_same(load(path), [ag.ones(2)])
    with path.open("rb") as file:
        assert_same(load(file, map_location="cpu"), [ag.ones(2)])
    with path.open("rb") as file:
        with pytest.raises(TypeError):
            load(file.fileno())
        assert file.read(2) == b"PK"
    assert_same(load(path, map_location=lambda tensor, location: location), [ag.ones(2)])


def row_sparse():
    """Row-sparse gradients, as accumulated and coalesced."""
    table = ag.ones(4, 2, requires_grad=True)
    rows = ag.nn.functional.embedding(ag.tensor([1, 3, 1]), table, sparse=True)
    (rows * rows).sum().backward()
    return [table.grad, table.grad.coalesce(), table.grad]


def assert_same_rows(found, expected):
    assert [one.is_sparse for one in found] == [True] * 3
    assert [one.is_coalesced() for one in found] == [False, True, False]
    assert found[0] is found[2]
    for one, other in zip(found, expected, strict=True):
        assert one._indices().tolist() == other._indices().tolist()
        assert one._values().tolist() == other._values().tolist()
        assert tuple(one.shape) == tuple(other.shape)


def test_row_sparse_gradients_stay_row_sparse():
    given = row_sparse()
    assert_same_rows(load(written(given)), given)


def test_memory_that_was_shared_is_shared_again():
    weight = nn.Parameter(ag.ones(3))
    loaded = load(written({"a": weight, "b": weight, "c": weight.detach(), "d": ag.ones(3)}))
    assert loaded["a"] is loaded["b"]
    assert np.shares_memory(loaded["a"]._array, loaded["c"]._array)
    assert not np.shares_memory(loaded["a"]._array, loaded["d"]._array)


VIEWS = {
    "part": lambda x: x[1:],
    "turned": lambda x: x.t(),
    "row": lambda x: x[1],
    "every other": lambda x: x[:, ::2],
    "flat": lambda x: x.view(-1),
    "expanded": lambda x: x[:1].expand(5, 4),
    "a number": lambda x: x[2, 3],
    "strided": lambda x: x.as_strided((2, 2), (5, 2), 1),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", VIEWS)
def test_views_and_what_they_look_into_share_memory_again(name):
    """And lie in it as they did, in PyTorch, too."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    base = ag.arange(12.0).view(3, 4)
    value = [base, VIEWS[name](base)]
    file = written(value)
    ours = load(written(load(file)))
    file.seek(0)
    for T, loaded in ((ag, ours), (torch, torch.load(file, weights_only=True))):
        memory, view = loaded
        assert (view.shape, view.stride()) == (value[1].shape, value[1].stride())
        assert view.tolist() == value[1].tolist()
        memory.fill_(7.0)
        assert T.equal(view, T.full_like(view, 7.0))


def test_what_looks_into_memory_as_no_tensor_of_pytorchs_can_is_saved_by_itself():
    backwards = ag.from_numpy(np.arange(4.0)[::-1])
    real = ag.tensor([1 + 2j, 3 - 1j]).real
    for value in (backwards, real, ag.zeros(0, 3)[:, 1:]):
        assert_same(load(written(value)), value)


def test_what_is_loaded_can_be_changed_in_place():
    loaded = load(written(ag.ones(3)))
    loaded += 1.0
    assert (loaded.numpy() == 2.0).all()


def test_models_and_optimizers_go_on_from_a_file():
    def made():
        ag.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        return model, ag.optim.Adam(model.parameters(), lr=0.1)

    def train(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(ag.ones(2, 3)).sum().backward()
            optimizer.step()

    model, optimizer = made()
    train(model, optimizer, 3)
    state = load(written({"model": model.state_dict(), "optimizer": optimizer.state_dict()}))
    other, other_optimizer = made()
    other.load_state_dict(state["model"])
    other_optimizer.load_state_dict(state["optimizer"])
    for m, o in ((model, optimizer), (other, other_optimizer)):
        train(m, o, 3)
    assert_same(other.state_dict(), model.state_dict())


def test_options_of_pytorchs_files_are_accepted(tmp_path):
    save([1], tmp_path / "weights.pt")
    assert load(tmp_path / "weights.pt", weights_only=True, mmap=True) == [1]
    save([2], tmp_path / "weights.pt", pickle, pickle_protocol=4)
    assert load(tmp_path / "weights.pt", "cpu", pickle) == [2]


def test_objects_are_refused_and_nothing_is_written(tmp_path):
    path = tmp_path / "weights.pt"
    with pytest.raises(TypeError, match="Linear"):
        save({"model": nn.Linear(1, 1)}, path)
    for unreadable in ({(1, 2): 3}, {(1, 2)}, OrderedDict({b"a": 1})):
        with pytest.raises(TypeError, match="keys and members of sets"):
            save(unreadable, path)
    with pytest.raises(ValueError, match="too large"):
        save(2**3000, path)
    ring = []
    ring.append(ring)
    with pytest.raises(ValueError, match="contains itself"):
        save(ring, path)
    twice = [1]
    assert load(written([twice, twice])) == [[1], [1]]
    assert not path.exists()


@pytest.mark.torch
class TestBesidePyTorch:
    def test_pytorchs_files_are_read(self):
        import torch

        base = torch.arange(24.0).reshape(4, 6)
        value = {
            "transposed": base.T,
            "part": base[1:3, ::2],
            "expanded": torch.ones(3, 1).expand(3, 4),
            "empty": torch.zeros(0, 2),
            "scalar": torch.tensor(3),
            "parameter": torch.nn.Parameter(torch.ones(2)),
            "shape": base.shape,
            "numbers": [1, -2, 2**70, 1.5, None, True],
            **{f"of {name}": torch.arange(3).to(getattr(torch, name)) for name in DTYPES},
        }
        for protocol in (2, 4, 5):
            file = io.BytesIO()
            torch.save(value, file, pickle_protocol=protocol)
            loaded = load(file)
            assert [*loaded] == [*value]
            for name, expected in value.items():
                if isinstance(expected, torch.Tensor):
                    found = loaded[name]
                    assert found.shape == tuple(expected.shape)
                    np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())
                    assert found.dtype == expected.detach().numpy().dtype
                    assert found.requires_grad == expected.requires_grad
                else:
                    assert loaded[name] == expected
            assert isinstance(loaded["parameter"], nn.Parameter)
            assert np.shares_memory(loaded["transposed"]._array, loaded["part"]._array)
            with pytest.raises(RuntimeError, match="read-only"):
                loaded["expanded"] += 1.0

    def test_bfloat16(self):
        import torch

        pytest.importorskip("ml_dtypes")
        file = io.BytesIO()
        torch.save(torch.tensor([1.0, 2.5]).bfloat16(), file)
        with zipfile.ZipFile(file) as archive:
            assert archive.read("archive/data.pkl").count(b"BFloat16Storage") == 1

    def test_pytorch_reads_ours(self):
        import torch

        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())
        mine = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
        value = {
            "model": mine.state_dict(),
            "parameter": nn.Parameter(ag.ones(2)),
            "transposed": ag.from_numpy(np.arange(6.0).reshape(2, 3).T),
            "nested": [1, (2.5, None, True, "é"), 2**70, -3],
            "counts": Counter([3, 9, 9]),
            "plain": [b"\x00\xff", {1, "a"}, 1 - 2j],
            "device": ag.device("cpu"),
            **{f"of {name}": ag.from_numpy(np.arange(3).astype(name)) for name in DTYPES},
        }
        file = written(value)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        model.load_state_dict(loaded["model"])
        assert loaded["model"]._metadata == model.state_dict()._metadata
        assert (loaded["counts"], type(loaded["counts"])) == (value["counts"], Counter)
        np.testing.assert_array_equal(
            model[0].weight.detach().numpy(), mine[0].weight.detach().numpy()
        )
        assert isinstance(loaded["parameter"], torch.nn.Parameter)
        np.testing.assert_array_equal(loaded["transposed"].numpy(), np.arange(6.0).reshape(2, 3).T)
        assert loaded["nested"] == value["nested"]
        assert loaded["plain"] == value["plain"]
        assert loaded["device"] == torch.device("cpu")
        for name in DTYPES:
            assert loaded[f"of {name}"].dtype == getattr(torch, name)

    @pytest.mark.filterwarnings("ignore:Sparse invariant checks")
    def test_row_sparse_tensors_go_both_ways(self):
        import torch

        file = written(given := row_sparse())
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        assert_same_rows(loaded, given)
        file = io.BytesIO()
        torch.save(loaded, file)
        assert_same_rows(load(file), given)
        file = io.BytesIO()
        torch.save(torch.eye(2).to_sparse(), file)
        with pytest.raises(pickle.UnpicklingError, match="several sparse axes"):
            load(file)

    def test_state_dicts_carry_the_modules_versions(self):
        import torch

        model = torch.nn.Sequential(torch.nn.Linear(3, 2))
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        loaded = load(file)
        assert isinstance(loaded, OrderedDict)
        assert loaded._metadata == model.state_dict()._metadata
        nn.Sequential(nn.Linear(3, 2)).load_state_dict(loaded)


# -- hostile files --------------------------------------------------------------------------------


class Exploit:
    def __reduce__(self):
        return print, ("this ran",)


def storage(kind=b"FloatStorage", key=b"0", count=3, module=b"torch"):
    """The reference to a storage, as a pickle writes it."""
    return (
        b"(X\x07\x00\x00\x00storagec" + module + b"\n" + kind + b"\n"
        b"X"
        + struct.pack("<I", len(key))
        + key
        + b"X\x03\x00\x00\x00cpuJ"
        + struct.pack("<i", count)
        + b"tQ"
    )


def tensor(reference=None, offset=0, shape=(3,), strides=(1,), function=b"_rebuild_tensor_v2"):
    def number(n):
        return b"\x8a\x08" + struct.pack("<q", n)

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    return (
        b"ctorch._utils\n"
        + function
        + b"\n("
        + (reference or storage())
        + number(offset)
        + numbers(shape)
        + numbers(strides)
        + b"\x89N"
        + b"tR"
    )


def sparse(shape=(4,), places=b"LongStorage", layout=b"coo"):
    """A row-sparse tensor with the rows 0, 1 and 3, as a pickle writes it."""
    layout = b"torch.sparse_" + layout
    return (
        b"ctorch._utils\n_rebuild_sparse_tensor\n("
        b"ctorch.serialization\n_get_layout\nX"
        + struct.pack("<I", len(layout))
        + layout
        + b"\x85R("
        + tensor(storage(places, b"1"), shape=(1, 3), strides=(3, 1))
        + tensor()
        + b"("
        + b"".join(b"J" + struct.pack("<i", n) for n in shape)
        + b"t\x88ttR"
    )


def head(body):
    return b"\x80\x02" + body + b"."


THREE = np.arange(3, dtype="<f4").tobytes()
PLACES = np.array([0, 1, 3], dtype="<i8").tobytes()


def test_the_hostile_tensor_is_a_tensor_when_it_is_not_hostile():
    loaded = load(with_pickle(head(tensor()), _0=THREE))
    assert loaded.numpy().tolist() == [0.0, 1.0, 2.0]
    loaded = load(with_pickle(head(sparse()), _0=THREE, _1=PLACES))
    assert loaded.to_dense().tolist() == [0.0, 1.0, 0.0, 2.0]


@pytest.mark.parametrize("weights_only", [None, True, False])
@pytest.mark.parametrize("protocol", [2, 4])
def test_code_is_never_run(protocol, weights_only, capsys):
    """Also for programs that ask for it, whose files of weights are read."""
    with pytest.raises(pickle.UnpicklingError, match=r"asks for (builtins|__builtin__)\.print"):
        load(with_pickle(pickle.dumps(Exploit(), protocol)), weights_only=weights_only)
    assert load(with_pickle(head(tensor()), _0=THREE), weights_only=weights_only).shape == (3,)
    assert capsys.readouterr().out == ""


HOSTILE = {
    "a function": head(b"cos\nsystem\nX\x02\x00\x00\x00ls\x85R"),
    "a function of ours": head(b"casyncgrad.serialization.archive\nload\n)R"),
    "a method by path": head(b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n)R"),
    "a class as a value": head(b"ctorch._utils\n_rebuild_tensor_v2\n"),
    "a class in a tuple": head(b"]ctorch\nFloatStorage\n\x85a"),
    "a storage as a value": head(b"}X\x01\x00\x00\x00a" + storage() + b"s"),
    "a storage in a tuple": head(storage() + b"\x85"),
    "a class in an ordered dict": head(
        b"ccollections\nOrderedDict\n](X\x01\x00\x00\x00acos\nsystem\n\x86e\x85R"
    ),
    "attributes of a function": head(b"ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aNsb"),
    "attributes of a tensor": head(tensor() + b"}X\x01\x00\x00\x00aNsb"),
    "other attributes of a dict": head(
        b"ccollections\nOrderedDict\n)R}X\x09\x00\x00\x00__class__Nsb"
    ),
    "another object outside": head(b"X\x06\x00\x00\x00modulectorch\nFloatStorage\n"
                                   b"X\x01\x00\x00\x000NN" + b"tQ"),
    "a storage of another module": head(tensor(storage(module=b"evil"))),
    "an unknown storage": head(tensor(storage(b"EvilStorage"))),
    "too many elements": head(tensor(storage(count=4))),
    "too few elements": head(tensor(storage(count=2))),
    "a negative count": head(tensor(storage(count=-1))),
    "another dtype": head(b"]" + tensor() + b"a" + tensor(storage(b"IntStorage")) + b"a"),
    "a broken element": head(tensor(storage(b"DoubleStorage", count=1))),
    "a shape beyond the storage": head(tensor(shape=(4,))),
    "strides beyond the storage": head(tensor(shape=(2,), strides=(3,))),
    "an offset beyond the storage": head(tensor(offset=1)),
    "a negative offset": head(tensor(offset=-1, shape=(1,))),
    "a negative stride": head(tensor(offset=2, strides=(-1,))),
    "a negative size": head(tensor(shape=(-1,))),
    "a huge shape": head(tensor(shape=(2**62, 2**62), strides=(0, 0))),
    "more axes than numpy has": head(tensor(shape=(1,) * 100, strides=(1,) * 100)),
    "a shape without strides": head(tensor(strides=())),
    "rows beyond the table": head(sparse(shape=(2,))),
    "rows of another shape": head(sparse(shape=(4, 2))),
    "rows of no table": head(sparse(shape=())),
    "rows at places that are no integers": head(sparse(places=b"DoubleStorage")),
    "another layout": head(sparse(layout=b"csr")),
    "a tuple as a key": head(b"})Ns"),
    "an unhashable key": head(b"}]Ns"),
    "a key without a value": head(b"}(Nu"),
    "an append to a number": head(b"J\x01\x00\x00\x00Na"),
    "an unknown operation": head(b"\x8c\x01a\x93"),
    "an extension": head(b"\x82\x01"),
    "a new object": head(b"ccollections\nOrderedDict\n)\x81"),
    "a missing operand": head(b"\x86"),
    "a missing mark": head(b"t"),
    "a missing memo": head(b"h\x05"),
    "an empty stack": head(b""),
    "no end": b"\x80\x02N",
    "a string beyond the file": head(b"X\xff\xff\xff\x7fabc"),
    "no pickle": b"\xff\xfe\xfd",
    "nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles_are_refused(data):
    with pytest.raises(pickle.UnpicklingError, match="load: "):
        load(with_pickle(data, _0=THREE, _1=PLACES))


def test_an_empty_view_of_a_storage_is_allowed_anywhere():
    loaded = load(with_pickle(head(tensor(offset=7, shape=(0, 5), strides=(9, 9))), _0=THREE))
    assert loaded.shape == (0, 5)


def test_tuples_that_share_their_parts_take_no_longer_for_it():
    nested = b")" + b"".join(b"q" + bytes([n]) + b"h" + bytes([n]) + b"\x86" for n in range(90))
    loaded = load(with_pickle(head(b"]" + nested + b"a")))
    depth, part = 0, loaded[0]
    while part:
        depth, part = depth + 1, part[0]
    assert depth == 90


def test_an_archive_that_lacks_a_storage():
    with pytest.raises(RuntimeError, match="no storage '0'"):
        load(with_pickle(head(tensor())))


def test_files_that_are_no_archives(tmp_path):
    old = tmp_path / "old.pt"
    old.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(RuntimeError, match="no file of torch"):
        load(old)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.pt")
    with pytest.raises(RuntimeError, match=r"no data\.pkl"):
        load(packed({"readme": b"hello"}))
    with pytest.raises(RuntimeError, match="compressed"):
        load(packed({"archive/data.pkl": b"\x80\x02N."}, zipfile.ZIP_DEFLATED))
    with pytest.raises(RuntimeError, match="byte order"):
        load(packed({"archive/data.pkl": b"\x80\x02N.", "archive/byteorder": b"middle"}))
    with pytest.raises(RuntimeError, match="nowhere"):
        load(written(1), map_location="nowhere")


def test_truncated_and_damaged_archives():
    data = written({"a": ag.arange(1000).to(ag.float64)}).getvalue()
    for end in range(0, len(data) - 1, 97):
        with pytest.raises(RuntimeError):
            load(io.BytesIO(data[:end]))
    place = data.index(np.float64(500.0).tobytes())
    damaged = data[:place] + b"\xff" + data[place + 1 :]
    with pytest.raises(RuntimeError, match="damaged"):
        load(io.BytesIO(damaged))


@pytest.mark.parametrize("opened", [True, False])
def test_damage_anywhere_in_an_archive_is_one_error(tmp_path, opened):
    """Names that are no text, places before the beginning and unknown versions, too."""
    data = written({"a": ag.ones(3), "b": [1, (2.0, "x")]}).getvalue()
    path = tmp_path / "damaged.pt"
    random = np.random.default_rng(0)
    for _ in range(400):
        damaged = bytearray(data)
        for place in random.integers(0, len(damaged), size=random.integers(1, 4)):
            damaged[place] = random.integers(0, 256)
        path.write_bytes(damaged)
        with contextlib.suppress(pickle.UnpicklingError, RuntimeError):
            load(io.BytesIO(damaged) if opened else path)


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("place", [2**32, 2**63 - 1, 2**63, 2**64 - 1])
def test_entries_that_claim_to_be_beyond_the_end(tmp_path, place, opened):
    """Places of more than 63 bits can't even be looked at."""
    damaged = io.BytesIO()
    with zipfile.ZipFile(damaged, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02N.")
        archive.filelist[0].header_offset = place
    path = tmp_path / "damaged.pt"
    path.write_bytes(damaged.getvalue())
    with pytest.raises(RuntimeError, match="damaged"):
        load(damaged if opened else path)


def test_entries_that_claim_more_than_there_is():
    data = bytearray(written(ag.ones(10)).getvalue())
    size = struct.pack("<I", 40)
    name = b"archive/data/0"
    central = data.rindex(name) - 46
    assert data[central + 20 : central + 24] == size
    data[central + 20 : central + 28] = struct.pack("<II", 2**31, 2**31)
    with pytest.raises(RuntimeError, match="larger than itself"):
        load(io.BytesIO(data))


def test_both_byte_orders():
    contents = entries(written(ag.from_numpy(np.array([1.5, -2.0]))))
    contents["archive/byteorder"] = b"big"
    contents["archive/data/0"] = np.array([1.5, -2.0], ">f8").tobytes()
    assert load(packed(contents)).numpy().tolist() == [1.5, -2.0]
    assert sys.byteorder in {"little", "big"}


def test_a_file_need_not_count_what_it_writes():
    parts = []

    class File:
        def write(self, part):
            parts.append(bytes(part))

    save({"a": ag.ones(2)}, File())
    assert_same(load(io.BytesIO(b"".join(parts))), {"a": ag.ones(2)})


@pytest.mark.parametrize("value", [[1], [ag.ones(2)]])
@pytest.mark.parametrize("place", [3.5, 1j])
def test_what_is_no_device_is_refused_for_every_file(value, place):
    """It was called damage of the file, or passed over where there was no tensor."""
    with pytest.raises(TypeError, match="must be a device"):
        load(written(value), map_location=place)


@pytest.mark.parametrize("seed", range(20))
def test_random_damage_never_does_more_than_raise(seed):
    """Either what is loaded is plain, or the error is one of the two that are documented."""
    value = {"a": ag.ones(3), "b": [1, (2.0, "x")], "c": nn.Parameter(ag.zeros(2, 2))}
    contents = entries(written(value))
    random = np.random.default_rng(seed)
    pickled = bytearray(contents["archive/data.pkl"])
    for _ in range(40):
        damaged = bytearray(pickled)
        for place in random.integers(0, len(damaged), size=random.integers(1, 4)):
            damaged[place] = random.integers(0, 256)
        contents["archive/data.pkl"] = bytes(damaged)
        try:
            loaded = load(packed(contents))
        except (pickle.UnpicklingError, RuntimeError):
            continue
        save(loaded, io.BytesIO())
