"""Copies and pickles of tensors."""

import copy
import io
import pickle
from multiprocessing.reduction import ForkingPickler
from types import FunctionType

import numpy as np
import pytest
from parity import both

import asyncgrad as ag


def pickled(value):
    return pickle.loads(pickle.dumps(value))


def leaf():
    x = ag.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (x * x).sum().backward()
    return x


WAYS = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": pickled}


@pytest.mark.parametrize("duplicate", WAYS.values(), ids=WAYS)
def test_copies_are_leaves_with_the_same_values(duplicate):
    x = leaf()
    x.detach().mul_(2)
    other = duplicate(x)
    assert other is not x
    assert other.is_leaf
    assert other.requires_grad
    assert (other == x).all()
    assert other._version == 0 != x._version
    (other * 3).sum().backward()
    assert not duplicate(ag.arange(3)).requires_grad


def test_shallow_copies_alone_share_memory():
    x = leaf()
    assert np.shares_memory(copy.copy(x)._array, x._array)
    assert not np.shares_memory(copy.deepcopy(x)._array, x._array)
    assert not np.shares_memory(pickled(x)._array, x._array)


def test_deep_copies_alone_have_a_gradient():
    x = leaf()
    other = copy.deepcopy(x)
    assert (other.grad == x.grad).all()
    assert not np.shares_memory(other.grad._array, x.grad._array)
    assert copy.copy(x).grad is None
    assert pickled(x).grad is None


def test_deep_copies_of_computed_tensors_are_refused():
    x = leaf()
    for computed in (x * 2, x[0]):
        with pytest.raises(RuntimeError, match="graph leaves"):
            copy.deepcopy(computed)
    assert copy.deepcopy((x * 2).detach()).tolist() == [[2.0, 4.0], [6.0, 8.0]]


@pytest.mark.parametrize("dumps", [pickle.dumps, ForkingPickler.dumps], ids=["pickle", "fork"])
def test_computed_tensors_are_not_pickled_nor_sent_to_other_processes(dumps):
    """What would arrive is a leaf, whose gradient reaches nobody."""
    x = leaf()
    for given in (x * 2, x[0], [x.reshape(4)], {"loss": (x * x).sum()}):
        with pytest.raises(RuntimeError, match=r"crossing process boundaries.*detach"):
            dumps(given)
    with ag.no_grad():
        unrecorded = x[0]
    for given in (x, unrecorded, (x * 2).detach(), ag.ones(2), ag.nn.Parameter(ag.ones(2))):
        arrived = pickle.loads(dumps(given))
        assert type(arrived) is type(given)
        assert arrived.is_leaf
        assert arrived.requires_grad == given.requires_grad
        assert (arrived == given).all()


@pytest.mark.parametrize(
    "strided",
    [lambda x: x, lambda x: x.mT, lambda x: x[:, ::2], lambda x: x[0].expand(3, 4)],
    ids=["contiguous", "transposed", "every-second", "expanded"],
)
def test_values_are_pickled_out_of_band_whatever_their_strides(strided):
    """Within the pickle they would be copied with it, at each step of their way."""
    given = strided(ag.arange(12.0).reshape(3, 4))
    buffers = []
    header = pickle.dumps(given, protocol=5, buffer_callback=buffers.append)
    assert [buffer.raw().nbytes for buffer in buffers] == [given.numel() * 4]
    assert pickle.loads(header, buffers=buffers).tolist() == given.tolist()
    assert pickled(given).tolist() == given.tolist()


@pytest.mark.parametrize("duplicate", WAYS.values(), ids=WAYS)
def test_row_sparse_gradients_stay_row_sparse(duplicate):
    table = ag.ones(4, 2, requires_grad=True)
    rows = ag.nn.functional.embedding(ag.tensor([1, 3, 1]), table, sparse=True)
    (rows * rows).sum().backward()
    for gradient in (table.grad, table.grad.coalesce()):
        other = duplicate(gradient)
        assert other.is_sparse
        assert other.is_coalesced() == gradient.is_coalesced()
        assert other._indices().tolist() == gradient._indices().tolist()
        assert other._values().tolist() == gradient._values().tolist()
        assert other.shape == gradient.shape
        assert other.dtype == gradient.dtype


def test_views_that_are_leaves_are_copied():
    """As in PyTorch: neither leads into a graph, and both say that they require grad."""
    x = leaf()
    with ag.no_grad():
        unrecorded = x[0]
    for view in (unrecorded, x.detach()[0].requires_grad_()):
        copied = copy.deepcopy(view)
        assert copied.is_leaf
        assert copied.requires_grad
        assert copied.tolist() == view.tolist()


class Tagged(ag.Tensor):
    """A class of a user's, which is found when its tensors are unpickled."""

    __slots__ = ("__dict__", "unit")


@pytest.mark.parametrize("duplicate", WAYS.values(), ids=WAYS)
def test_copies_of_subclasses_are_of_the_same_class(duplicate):
    """With all that was set on them; PyTorch's are, too."""
    x = leaf().as_subclass(Tagged)
    for given in (x.detach().as_subclass(Tagged), ag.ones(2).as_subclass(Tagged)):
        given.unit, given.names = "m", ["a"]
        other = duplicate(given)
        assert type(other) is Tagged
        assert other.tolist() == given.tolist()
        assert (other.unit, other.names) == ("m", ["a"])
        assert (other.names is given.names) == (duplicate is copy.copy)
    buffer = duplicate(ag.nn.Buffer(ag.ones(2), persistent=False))
    assert type(buffer) is ag.nn.Buffer
    assert not buffer.persistent


class Counted(ag.Tensor):
    """A class of a user's that says what is copied of its tensors."""

    def __getstate__(self):
        return self.count, "kept"

    def __setstate__(self, state):
        self.count = state


@pytest.mark.parametrize("duplicate", WAYS.values(), ids=WAYS)
def test_a_subclass_says_what_is_copied_of_its_tensors(duplicate):
    x = ag.ones(2).as_subclass(Counted)
    x.count, x.other = 3, "not copied"
    assert vars(duplicate(x)) == {"count": (3, "kept")}


def test_a_tensor_that_holds_itself_is_copied():
    x = ag.ones(2).as_subclass(Tagged)
    x.own = [x]
    other = copy.deepcopy(x)
    assert other.own[0] is other is not x


@both
def test_the_method_knows_what_has_been_copied(T, log):
    """A `__deepcopy__` of a class that holds tensors may call theirs."""
    for x in (T.ones(2), T.nn.Parameter(T.ones(2))):
        memo = {}
        other = copy.deepcopy(x, memo)
        log(other is x, x.__deepcopy__(memo) is other)


def test_what_occurs_twice_is_copied_once():
    x = leaf()
    for duplicate in (copy.deepcopy, pickled):
        first, second = duplicate([x, x])
        assert first is second


def test_parameters_keep_what_was_attached():
    parameter = ag.nn.Parameter(ag.ones(2))
    parameter.note = ["mine"]
    parameter.grad = ag.ones(2)
    other = copy.copy(parameter)
    assert isinstance(other, ag.nn.Parameter)
    assert other.note is parameter.note
    assert other.grad is None
    assert np.shares_memory(other._array, parameter._array)


def test_hooks_are_not_pickled():
    for tensor in (leaf(), ag.nn.Parameter(ag.ones(2))):
        handle = tensor.register_hook(lambda g: g)
        with pytest.warns(UserWarning, match="hook"):
            pickle.dumps(tensor)
        handle.remove()
        pickle.dumps(tensor)


def test_optimisers_are_copied_with_their_parameters():
    model = ag.nn.Linear(2, 2)
    optimizer = ag.optim.Adam(model.parameters())
    model(ag.ones(1, 2)).sum().backward()
    optimizer.step()
    for duplicate in (copy.deepcopy, pickled):
        twin, other = duplicate((model, optimizer))
        assert other.param_groups[0]["params"][0] is twin.weight
        state = other.state[twin.weight]
        assert (state["exp_avg"] == optimizer.state[model.weight]["exp_avg"]).all()
        assert not np.shares_memory(
            state["exp_avg"]._array, optimizer.state[model.weight]["exp_avg"]._array
        )


def test_files_are_written_and_read():
    model = ag.nn.Sequential(ag.nn.Linear(2, 3), ag.nn.BatchNorm1d(3))
    file = io.BytesIO()
    ag.save(model.state_dict(), file)
    file.seek(0)
    state = ag.load(file)
    other = ag.nn.Sequential(ag.nn.Linear(2, 3), ag.nn.BatchNorm1d(3))
    other.load_state_dict(state)
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_copied_dtype_is_the_dtype_of_tensors():
    """`x.dtype is ag.float32` holds whichever equal dtype the tensor was made with."""
    for dtype in (ag.float64, ag.int64):
        for other in (copy.deepcopy(dtype), pickled(dtype)):
            made = ag.zeros(7, 3, dtype=other), ag.ones(7, 3).to(other)
            assert all(x.dtype is dtype for x in made)


SPACES = (ag, ag.Tensor, ag.nn.functional, ag.linalg, ag.special, ag.fft)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.__name__)
def test_functions_are_pickled_by_name(space):
    """A module keeps its activation function, and other processes are told what to call."""
    functions = {name: one for name, one in vars(space).items() if type(one) is FunctionType}
    assert functions
    assert [name for name, one in functions.items() if pickled(one) is not one] == []
