"""Files of the safetensors format."""

import sys

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.serialization import load_safetensors, save_safetensors

safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed")


def test_state_dicts_come_back(tmp_path):
    path = tmp_path / "model.safetensors"
    model, other = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()
    save_safetensors(model.state_dict(), path, {"of": "a test"})
    other.load_state_dict(load_safetensors(path))
    np.testing.assert_array_equal(other.weight._array, model.weight._array)
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata() == {"of": "a test"}


def test_shapes_and_layouts(tmp_path):
    path = tmp_path / "t.safetensors"
    tensors = {
        "transposed": ag.from_numpy(np.arange(6.0).reshape(2, 3).T),
        "scalar": ag.tensor(3),
        "empty": ag.zeros(0, 2),
        "flags": ag.tensor([True, False]),
    }
    save_safetensors(tensors, path)
    loaded = load_safetensors(path)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        np.testing.assert_array_equal(loaded[name].numpy(), tensor.numpy())


@pytest.mark.torch
def test_pytorch_reads_and_writes_the_same(tmp_path):
    import torch
    from safetensors import torch as theirs

    path = tmp_path / "t.safetensors"
    save_safetensors({"a": ag.ones(2, 3)}, path)
    assert torch.equal(theirs.load_file(path)["a"], torch.ones(2, 3))
    theirs.save_file({"b": torch.arange(4)}, path)
    assert load_safetensors(path)["b"].numpy().tolist() == [0, 1, 2, 3]


def test_what_is_refused(tmp_path):
    path = tmp_path / "t.safetensors"
    with pytest.raises(TypeError, match="'step' is of type int"):
        save_safetensors({"step": 3}, path)
    assert not path.exists()
    save_safetensors({"a": ag.ones(100)}, path)
    data = path.read_bytes()
    for damaged in (b"", data[:20], data[:-1], b"\xff" * 8 + data[8:]):
        path.write_bytes(damaged)
        with pytest.raises(safetensors.SafetensorError):
            load_safetensors(path)


def test_without_the_package_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"asyncgrad\[safetensors\]"):
        load_safetensors(tmp_path / "t.safetensors")


def test_what_has_no_names_is_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    with pytest.raises(TypeError, match="expected a dictionary, got list"):
        save_safetensors([ag.ones(1)], path)
    assert not path.exists()


def test_dtypes_that_tensors_can_not_have_are_named(tmp_path):
    path = tmp_path / "weights.safetensors"
    header = b'{"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    with pytest.raises(TypeError, match="float8_e4m3fn"):
        load_safetensors(path)


def test_load_says_by_what_such_a_file_is_read(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_safetensors({"weight": ag.ones(2)}, path)
    with pytest.raises(RuntimeError, match=r"safetensors file; .*load_safetensors\(\) reads it"):
        ag.load(path)
