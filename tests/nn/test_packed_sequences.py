"""Packed sequences, and recurrent layers over them, beside PyTorch."""

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.nn.utils import rnn

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

_RNG = np.random.default_rng(0)
_X = _RNG.standard_normal((5, 4, 3))
_their_rnn = torch.nn.utils.rnn


def _alike(theirs, ours):
    for expected, found in zip(theirs, ours, strict=True):
        if expected is None:
            assert found is None
        else:
            assert found.dtype.name == str(expected.dtype).rpartition(".")[2]
            np.testing.assert_allclose(found.numpy(force=True), expected.detach().numpy(), 1e-9)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", [[5, 4, 4, 1], [5, 5, 5, 5], [3, 2, 2, 2], [2, 5, 1, 4]])
def test_sequences_are_packed_and_padded_again(lengths, batch_first):
    options = {"batch_first": batch_first, "enforce_sorted": lengths[0] > 2}
    x = _X.transpose(1, 0, 2) if batch_first else _X
    theirs = torch.tensor(x, requires_grad=True)
    ours = ag.tensor(x, requires_grad=True)
    packed = _their_rnn.pack_padded_sequence(theirs, torch.tensor(lengths), **options)
    found = rnn.pack_padded_sequence(ours, lengths, **options)
    _alike(packed, found)
    more = {"batch_first": batch_first, "padding_value": -1.0, "total_length": 6}
    padded = _their_rnn.pad_packed_sequence(packed, **more)
    again = rnn.pad_packed_sequence(found, **more)
    _alike(padded, again)
    (padded[0] ** 2).sum().backward()
    (again[0] ** 2).sum().backward()
    _alike([theirs.grad], [ours.grad])


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("lengths", [[5, 4, 4, 1], [2, 5, 1, 4], [3, 3, 3, 3]])
@pytest.mark.parametrize("given", [False, True])
def test_recurrent_layers_go_over_packed_sequences(kind, lengths, given):
    options = {"num_layers": 2, "bidirectional": True}
    model = getattr(torch.nn, kind)(3, 2, **options).double()
    copy = getattr(ag.nn, kind)(3, 2, dtype=ag.float64, **options)
    copy.load_state_dict({k: ag.from_numpy(v.numpy()) for k, v in model.state_dict().items()})
    state = _RNG.standard_normal((4, 4, 2))
    results = []
    for library, module in ((torch, model), (ag, copy)):
        pack = library.nn.utils.rnn
        x = library.tensor(_X, requires_grad=True)
        packed = pack.pack_padded_sequence(x, library.tensor(lengths), enforce_sorted=False)
        hx = None
        if given:
            hx = library.tensor(state)
            hx = (hx, hx * 2) if kind == "LSTM" else hx
        out, last = module(packed, hx)
        padded, sizes = pack.pad_packed_sequence(out)
        last = list(last) if kind == "LSTM" else [last]
        loss = (padded**2).sum() + sum([(part * 3).sum() for part in last])
        loss.backward()
        gradients = [p.grad for p in module.parameters()]
        results.append([padded, sizes, *last, x.grad, *gradients])
    _alike(*results)


def test_sequences_of_several_lengths_are_put_together():
    arrays = [_RNG.standard_normal((n, 2)) for n in (2, 4, 1)]
    results = []
    for library in (torch, ag):
        pack = library.nn.utils.rnn
        parts = [library.tensor(a) for a in arrays]
        left = pack.pad_sequence(parts, batch_first=True, padding_value=7.0, padding_side="left")
        packed = pack.pack_sequence(parts, enforce_sorted=False)
        again = pack.unpack_sequence(packed)
        results.append([left, pack.pad_sequence(parts), *packed, *again])
    _alike(*results)


def test_gradients_go_through_padding():
    parts = [ag.ones(2, requires_grad=True), ag.ones(3, requires_grad=True)]
    (rnn.pad_sequence(parts, padding_value=5.0) * 2).sum().backward()
    assert [part.grad.tolist() for part in parts] == [[2, 2], [2, 2, 2]]


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [((3, 2, 1), [2, 3]), ((3, 2, 1), [3]), ((3, 2, 1), [3, 0]), ((0, 2), [1, 1]),
     ((3, 2), [[3, 2]])],
)  # fmt: skip
def test_lengths_that_do_not_fit_are_refused(shape, lengths):
    with pytest.raises(RuntimeError):
        _their_rnn.pack_padded_sequence(torch.ones(shape), torch.tensor(lengths))
    with pytest.raises(RuntimeError, match="pack_padded_sequence"):
        rnn.pack_padded_sequence(ag.ones(shape), lengths)


def test_other_arguments_that_do_not_fit_are_refused():
    packed = rnn.pack_padded_sequence(ag.ones(3, 2), [3, 2])
    with pytest.raises(RuntimeError, match="at most 3"):
        rnn.pack_padded_sequence(ag.ones(3, 2), [4, 1])
    with pytest.raises(ValueError, match="total_length"):
        rnn.pad_packed_sequence(packed, total_length=2)
    with pytest.raises(RuntimeError, match="empty list"):
        rnn.pad_sequence([])
    with pytest.raises(RuntimeError, match="padding_side"):
        rnn.pad_sequence([ag.ones(1)], padding_side="up")
    with pytest.raises(RuntimeError, match="2D"):
        ag.nn.RNN(1, 1)(packed)
    unsorted = rnn.pack_padded_sequence(ag.ones(3, 2, 1), [2, 3], enforce_sorted=False)
    with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size \(1, 2, 1\), got \(1, 1"):
        ag.nn.RNN(1, 1)(unsorted, ag.ones(1, 1, 1))
    assert packed.to(ag.float64).data.dtype == ag.float64


def test_the_inverse_of_the_order_is_computed():
    """Without it, recurrent layers returned final states in the packed order."""
    rows, sizes, order = np.arange(3.0)[:, None], [2, 1], [1, 0]
    packed = [
        library.nn.utils.rnn.PackedSequence(
            library.tensor(rows), library.tensor(sizes), library.tensor(order)
        )
        for library in (torch, ag)
    ]
    _alike(*packed)
    assert packed[1]._replace(batch_sizes=None).unsorted_indices is packed[1].unsorted_indices


def test_conversions_are_methods_of_the_class():
    packed = rnn.pack_sequence([ag.ones(2), ag.ones(1)])
    assert rnn.PackedSequence.double.__qualname__ == "PackedSequence.double"
    assert packed.double().data.dtype == ag.float64
    assert packed.float() is packed
    assert not packed.is_pinned()


def test_a_packed_sequence_is_pinned_as_its_tensors_are(monkeypatch):
    packed = rnn.pack_sequence([ag.ones(1), ag.ones(2)], enforce_sorted=False)
    monkeypatch.setattr(ag.Tensor, "pin_memory", lambda tensor: -tensor)
    pinned = packed.pin_memory()
    assert type(pinned) is rnn.PackedSequence
    assert pinned.batch_sizes is packed.batch_sizes
    assert [part.tolist() for part in pinned] == [[-1.0] * 3, [2, 1], [-1, 0], [-1, 0]]


def test_subclasses_stay_what_they_are():
    class Mine(rnn.PackedSequence):
        pass

    packed = Mine(*rnn.pack_sequence([ag.ones(2, 3), ag.ones(1, 3)]))
    assert type(packed.double()) is type(packed.to("float64")) is Mine
