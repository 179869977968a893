"""Row-sparse gradients: through the pass, in `.grad`, in optimisers; values beside PyTorch."""

import weakref

import numpy as np
import oracle
import pytest

import asyncgrad as ag
from asyncgrad.ops.tensors.sparse_rows import Rows

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

TABLE = np.arange(12.0).reshape(6, 2)
FACTORS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def table(m, dtype="float64"):
    return m.tensor(TABLE, dtype=getattr(m, dtype), requires_grad=True)


def used(m, weight, indices=(1, 2, 1), sparse=True, **options):
    """A sum of rows, each times something else."""
    index = m.tensor(list(indices), dtype=m.int64)
    rows = m.nn.functional.embedding(index, weight, sparse=sparse, **options)
    return (rows * m.tensor(FACTORS[: len(indices)], dtype=weight.dtype)).sum()


def dense(gradient):
    array = gradient.to_dense()
    return array.detach().numpy()


@pytest.fixture(params=["float32", "float64", "float16"])
def dtype(request):
    return request.param


def test_gradient_holds_the_rows_that_were_used(dtype):
    ours, theirs = table(ag, dtype), table(torch, dtype)
    for m, w in ((ag, ours), (torch, theirs)):
        used(m, w).backward()
    gradient = ours.grad
    assert gradient.is_sparse
    assert not gradient.is_coalesced()
    assert gradient.shape == TABLE.shape
    assert gradient.dtype == dtype
    assert gradient._nnz() == theirs.grad._nnz() == 3
    assert (gradient.sparse_dim(), gradient.dense_dim()) == (1, 1)
    assert gradient._indices().tolist() == theirs.grad._indices().tolist()
    assert gradient._values().tolist() == theirs.grad._values().tolist()
    once, wanted = gradient.coalesce(), theirs.grad.coalesce()
    assert once.is_coalesced()
    assert once.coalesce() is once
    assert once.indices().tolist() == wanted.indices().tolist()
    assert once.values().tolist() == wanted.values().tolist()
    np.testing.assert_array_equal(dense(gradient), theirs.grad.to_dense().numpy())
    assert "rows=[1, 2, 1]" in repr(gradient)


def test_memory_is_that_of_the_rows():
    """A million rows, of which three are used."""
    weight = ag.zeros(1_000_000, 2, requires_grad=True)
    used(ag, weight).backward()
    assert weight.grad._array.nbytes < 1000


PASSES = {
    "sparse and sparse": lambda m, w: used(m, w) + used(m, w, (1, 5)),
    "sparse and the same": lambda m, w: used(m, w) + used(m, w) * 2,
    "sparse and dense": lambda m, w: used(m, w) + (w * 2).sum(),
    "dense and sparse": lambda m, w: (w * 2).sum() + used(m, w),
    "dense, dense and sparse": lambda m, w: (w * w).sum() + (w * 2).sum() + used(m, w),
    "sparse of a product": lambda m, w: used(m, w * 2),
    "sparse of a product by another": lambda m, w: used(m, w * m.tensor(TABLE)),
    "sparse of what was negated": lambda m, w: used(m, -w),
    "sparse of a copy": lambda m, w: used(m, w.clone()),
    "sparse, no rows": lambda m, w: used(m, w, ()),
    "padding": lambda m, w: used(m, w, padding_idx=1),
    "rows of rows": lambda m, w: (
        m.nn.functional.embedding(m.tensor([[1, 2], [2, 0]]), w, sparse=True)
        * m.tensor(TABLE[:4].reshape(2, 2, 2))
    ).sum(),
}


@pytest.mark.parametrize("name", PASSES)
def test_sums_within_a_pass_are_pytorchs(name):
    function = PASSES[name]
    ours, theirs = table(ag), table(torch)
    for m, w in ((ag, ours), (torch, theirs)):
        function(m, w).backward()
    assert ours.grad.is_sparse == theirs.grad.is_sparse
    np.testing.assert_array_equal(dense(ours.grad), theirs.grad.to_dense().numpy())
    (found,) = ag.grad(function(ag, ours), ours)
    assert found.is_sparse == theirs.grad.is_sparse
    np.testing.assert_array_equal(dense(found), theirs.grad.to_dense().numpy())


@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_grad_accumulates_sparse_and_dense(first, second):
    """Into the same object, unless a sparse one gets something dense."""
    ours, theirs = table(ag), table(torch)
    kept = []
    for m, w in ((ag, ours), (torch, theirs)):
        used(m, w, sparse=first).backward()
        kept.append(w.grad)
        used(m, w, (1, 5), sparse=second).backward()
    assert ours.grad.is_sparse == theirs.grad.is_sparse
    assert (ours.grad is kept[0]) == (theirs.grad is kept[1])
    assert kept[0].is_sparse == kept[1].is_sparse
    np.testing.assert_array_equal(dense(kept[0]), kept[1].to_dense().numpy())
    np.testing.assert_array_equal(dense(ours.grad), theirs.grad.to_dense().numpy())


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize("earlier", [True, False])
def test_a_leaf_that_one_pass_reaches_twice_has_both_gradients(earlier, later):
    """Once as the computed tensor that it was, whose gradient is retained."""

    def loss(m, earlier, later):
        computed = table(m) * 1.0
        computed.retain_grad()
        before = used(m, computed, sparse=earlier)
        computed.detach_().requires_grad_()
        return computed, before + used(m, computed, (1, 5), sparse=later)

    ours, our_loss = loss(ag, earlier, later)
    our_loss.backward()
    # PyTorch adds no dense gradient to a sparse one here.
    theirs, their_loss = loss(torch, earlier, earlier and later)
    their_loss.backward()
    assert ours.grad.is_sparse == theirs.grad.is_sparse == (earlier and later)
    np.testing.assert_array_equal(dense(ours.grad), theirs.grad.to_dense().numpy())


def test_repetitions_never_take_more_room_than_the_table():
    weight = table(ag)
    for i in range(20):
        used(ag, weight, (i % 5, i % 3)).backward()
    assert weight.grad._nnz() <= 8


def test_failed_pass_leaves_a_sparse_gradient_alone():
    weight, other = table(ag), ag.ones(2, requires_grad=True)
    used(ag, weight).backward()
    before = dense(weight.grad)

    def fail(gradient):
        raise ValueError("no")

    product = other * 2
    product.register_hook(fail)
    with pytest.raises(ValueError, match="no"):
        (product.sum() + used(ag, weight)).backward()
    np.testing.assert_array_equal(dense(weight.grad), before)


def test_no_leaf_has_its_gradient_where_the_sum_of_sparse_ones_finds_no_memory(monkeypatch):
    first, table, last = ag.ones(4), ag.ones(5, 3), ag.ones(4)
    leaves = [leaf.requires_grad_() for leaf in (first, table, last)]

    def loss(*places):
        rows = ag.nn.functional.embedding(ag.tensor(places), table, sparse=True)
        return first.sum() + rows.sum() + last.sum()

    def none_left(arrays):
        raise MemoryError

    loss(1, 2).backward()
    before = [leaf.grad.to_dense().tolist() for leaf in leaves]
    second = loss(3)
    with monkeypatch.context() as patched:
        patched.setattr(np, "concatenate", none_left)
        with pytest.raises(MemoryError):
            second.backward()
    assert [leaf.grad.to_dense().tolist() for leaf in leaves] == before


@pytest.mark.asyncio
async def test_sparse_gradients_on_a_loop():
    weight = table(ag)
    await (used(ag, weight) + used(ag, weight, (3, 3))).backward()
    assert weight.grad.is_sparse
    assert dense(weight.grad).tolist()[3] == [4, 6]


def test_recorded_gradient_is_sparse_and_has_derivatives():
    ours, theirs = table(ag), table(torch)
    results = []
    for m, w, module in ((ag, ours, ag), (torch, theirs, torch.autograd)):
        rows = m.nn.functional.embedding(m.tensor([1, 2, 1]), w, sparse=True)
        (gradient,) = module.grad((rows**3).sum(), w, create_graph=True)
        assert gradient.is_sparse
        (second,) = module.grad((gradient.to_dense() * m.tensor(TABLE)).sum(), w)
        results.append((dense(gradient), dense(second)))
    np.testing.assert_allclose(results[0][0], results[1][0])
    np.testing.assert_allclose(results[0][1], results[1][1])


def test_hooks_see_sparse_gradients():
    seen = []
    weight = table(ag)
    weight.register_hook(lambda g: seen.append(g.is_sparse) or g * 2)
    weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.is_sparse))
    used(ag, weight).backward()
    assert seen == [True, True]
    assert dense(weight.grad)[2].tolist() == [6, 8]


def test_frequencies_are_refused_in_the_backward_pass():
    out = used(ag, table(ag), scale_grad_by_freq=True)
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported"):
        out.backward()


def test_change_of_the_indices_is_noticed():
    indices = ag.tensor([1, 2])
    out = ag.nn.functional.embedding(indices, table(ag), sparse=True)
    indices.fill_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.usefixtures("no_collector")
def test_rows_die_with_the_last_tensor():
    weight = table(ag)
    used(ag, weight).backward()
    held = weakref.ref(weight.grad)
    weight.grad = None
    assert held() is None


# -- what a sparse gradient can do ----------------------------------------------------------------


def gradients():
    found = []
    for m in (ag, torch):
        w = table(m)
        used(m, w).backward()
        found.append(w.grad)
    return found


CALLS = {
    "doubled": lambda m, g: g * 2,
    "halved": lambda m, g: g / 2,
    "negated": lambda m, g: -g,
    "itself twice": lambda m, g: g + g,
    "nothing": lambda m, g: g - g,
    "absolute": lambda m, g: g.abs(),
    "times an array": lambda m, g: g * m.tensor(TABLE),
    "after an array": lambda m, g: m.tensor(TABLE) + g,
    "sum": lambda m, g: g.sum(),
    "clone": lambda m, g: g.clone(),
    "detached": lambda m, g: g.detach(),
    "in float32": lambda m, g: g.to(m.float32),
    "doubled in place": lambda m, g: g.mul_(2),
    "zeroed": lambda m, g: g.zero_(),
    "coalesced": lambda m, g: g.coalesce(),
    "as numpy": lambda m, g: g.numpy(),
    "exp": lambda m, g: g.exp(),
    "view": lambda m, g: g.view(12),
    "indices": lambda m, g: g.indices(),
    "values": lambda m, g: g.values(),
    "item": lambda m, g: g.item(),
    "list": lambda m, g: g.tolist(),
    "indices of dense": lambda m, g: g.to_dense().indices(),
    "coalesce of dense": lambda m, g: g.to_dense().coalesce(),
    "clip_grad_value_": lambda m, g: clipped(m, g),
}


def clipped(m, g):
    weight = table(m)
    weight.grad = g
    m.nn.utils.clip_grad_value_([weight], 1.0)
    return weight.grad


@pytest.mark.parametrize("name", CALLS)
def test_operations_on_sparse_gradients_are_pytorchs(name):
    ours, theirs = gradients()
    try:
        expected = CALLS[name](torch, theirs)
    except Exception as error:
        kind = oracle.error_class(error)
        with pytest.raises(kind) as raised:
            CALLS[name](ag, ours)
        assert str(raised.value)
        return
    found = CALLS[name](ag, ours)
    assert found.is_sparse == expected.is_sparse
    assert found.dtype == str(expected.dtype).rpartition(".")[2]
    np.testing.assert_array_equal(dense(found), expected.to_dense().numpy())


@pytest.mark.parametrize(
    "use",
    [lambda r: r[0], lambda r: r.__setitem__(0, 1), np.asarray, lambda r: r.sum(0), np.exp,
     lambda r: r.__setitem__(Ellipsis, np.ones((6, 2))), lambda r: r * r, lambda r: 2 / r,
     lambda r: r + np.ones(2), lambda r: np.concatenate([r, r]), lambda r: r.reshape(12)],
)  # fmt: skip
def test_rows_refuse_the_rest_and_say_what_helps(use):
    rows = Rows(np.array([1]), np.ones((1, 2)), (6, 2))
    with pytest.raises((NotImplementedError, TypeError), match="to_dense"):
        use(rows)


# -- optimisers -----------------------------------------------------------------------------------

OPTIMISERS = {
    "SGD": {"lr": 0.1},
    "SGD, momentum": {"lr": 0.1, "momentum": 0.9, "dampening": 0.5},
    "SGD, nesterov": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "SGD, maximize": {"lr": 0.1, "maximize": True},
    "SGD, decay": {"lr": 0.1, "weight_decay": 0.1},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5},
    "Adagrad, maximize": {"lr": 0.1, "maximize": True},
    "Adagrad, decay": {"lr": 0.1, "weight_decay": 0.1},
    "SparseAdam": {"lr": 0.1},
    "SparseAdam, maximize": {"lr": 0.1, "maximize": True, "betas": (0.5, 0.9)},
    "SparseAdam, lr 0": {"lr": 0.0},
    "SparseAdam, beta": {"betas": (1.0, 0.9)},
    "Adam": {},
    "AdamW": {},
    "RMSprop": {},
}


def steps(m, name, sparse=True):
    weight = table(m)
    optimizer = getattr(m.optim, name.partition(",")[0])([weight], **OPTIMISERS[name])
    for indices in ((1, 2, 1), (5, 1), (), (0, 0, 0)):
        optimizer.zero_grad()
        used(m, weight, indices, sparse=sparse).backward()
        optimizer.step()
    return weight.detach().numpy(), optimizer.state_dict()["state"].get(0, {})


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_take_what_pytorchs_take(name):
    try:
        expected, state = steps(torch, name)
    except Exception as error:
        with pytest.raises(type(error)):
            steps(ag, name)
        return
    found, our_state = steps(ag, name)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    for key, value in state.items():
        if isinstance(value, torch.Tensor):
            np.testing.assert_allclose(our_state[key].numpy(), value.to_dense().numpy())
        elif not key.startswith("momentum"):
            assert our_state[key] == value


def test_sparse_adam_refuses_dense_gradients():
    with pytest.raises(RuntimeError, match="consider Adam"):
        steps(ag, "SparseAdam", sparse=False)


def test_embedding_module_trains_sparsely():
    layer = ag.nn.Embedding(5, 3, padding_idx=0, sparse=True)
    before = layer.weight.detach().clone()
    optimizer = ag.optim.SGD(layer.parameters(), lr=1.0)
    layer(ag.tensor([0, 3])).sum().backward()
    assert layer.weight.grad._indices().tolist() == [[3]]
    optimizer.step()
    changed = (layer.weight.detach() - before).tolist()
    assert changed[3] == pytest.approx([-1, -1, -1])
    assert all(row == [0, 0, 0] for i, row in enumerate(changed) if i != 3)
    optimizer.zero_grad(set_to_none=False)
    assert layer.weight.grad.is_sparse
    assert layer.weight.grad._nnz() == 0


def test_sparse_gradients_are_dense_on_devices():
    ours = table(ag)
    used(ag, ours).backward()
    moved = ours.grad.to("sim:0")
    assert not moved.is_sparse
    assert moved.tolist() == ours.grad.to_dense().tolist()
    # A gradient on its way back to where the table is.
    there = ag.tensor(TABLE, device="sim:0", requires_grad=True)
    used(ag, there.to("cpu")).backward()
    assert there.grad.tolist() == moved.tolist()
