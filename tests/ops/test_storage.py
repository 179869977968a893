"""The memory of tensors beside PyTorch's."""

import pytest
from answers import check_answer

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch


def _x(library):
    return library.arange(6.0).reshape(2, 3).clone()


def _set(library, *args, of=None):
    x = _x(library) if of is None else of(library)
    found = x.set_(*args)
    return found is x, x.tolist(), tuple(x.shape), x.stride(), x._version, x.requires_grad


def _shared(library):
    x, other = _x(library), library.zeros(4)
    x.set_(other)
    x.add_(1)
    return other.tolist(), x.is_set_to(other), x.is_set_to(other[1:])


def _tied(library):
    """How programs find out which weights are one."""
    x = _x(library)
    tensors = [x, x[1], x.t(), x.detach(), x.clone()]
    first, *others = [each.untyped_storage().data_ptr() for each in tensors]
    return [other == first for other in others]


FACTS = {
    "bytes": lambda L: _x(L).untyped_storage().nbytes(),
    "bytes of a part": lambda L: _x(L)[1].untyped_storage().nbytes(),
    "bytes by length": lambda L: (len(_x(L).untyped_storage()), _x(L).untyped_storage().size()),
    "elements": lambda L: (len(_x(L)[0].storage()), _x(L).storage().size()),
    "elements in a list": lambda L: (_x(L).t().storage().tolist(), _x(L).storage()[1]),
    "bytes in a list": lambda L: (
        _x(L).untyped_storage().tolist(), _x(L).untyped_storage()[7], _x(L).storage().untyped()[7],
    ),
    "where": lambda L: str(_x(L).untyped_storage().device) + str(_x(L).storage().is_cuda),
    "address": lambda L: [t.untyped_storage().data_ptr() == t.data_ptr() for t in [_x(L)]],
    "tied": _tied,
    "set to a tensor": lambda L: _set(L, L.ones(4)),
    "set to its own part": lambda L: (lambda x: x.set_(x[1]).tolist())(_x(L)),
    "set and shared": _shared,
    "set to nothing": lambda L: _set(L)[:3],
    "set to a storage": lambda L: _set(L, _x(L).storage()),
    "set to a part": lambda L: _set(L, _x(L).storage(), 1, (2, 2), (2, 1)),
    "set to a part in a row": lambda L: _set(L, _x(L).untyped_storage(), 1, (2, 2)),
    "set to another dtype": lambda L: _set(L, L.ones(2, dtype=L.float64)),
    "set to a number": lambda L: _set(L, 3),
    "a leaf": lambda L: _set(L, L.ones(2), of=lambda L: L.ones(2, requires_grad=True)),
    "a constant of a leaf": lambda L: _set(L, L.ones(2, requires_grad=True).detach()),
    "kinds": lambda L: [
        getattr(_x(L), f"is_{kind}")
        for kind in (
            "cuda", "cpu", "mps", "meta", "quantized", "mkldnn", "xpu", "sparse", "sparse_csr",
            "nested", "vulkan", "ipu", "xla", "maia", "mtia",
        )
    ],
    "shared": lambda L: _x(L).is_shared(),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("name", FACTS)
def test_answers_are_pytorchs(name):
    check_answer(FACTS[name])


def _set_to(length, mode="no_grad"):
    def change(L, x):
        with getattr(L, mode)():
            x.set_(L.ones(length))

    return change


CHANGES = {
    "set": _set_to(2),
    "set in inference mode": _set_to(2, "inference_mode"),
    "data": lambda L, x: setattr(x, "data", L.ones(2)),
    "data of another dtype": lambda L, x: setattr(x, "data", L.ones(2, dtype=L.float64)),
    "data that is complex": lambda L, x: setattr(x, "data", L.ones(2, dtype=L.complex64)),
    "set, and set again": lambda L, x: (_set_to(3)(L, x), _set_to(2)(L, x)),
    "set, and made a constant": lambda L, x: (_set_to(2)(L, x), x.requires_grad_(False)),
    "set, and a leaf again": lambda L, x: (
        _set_to(2)(L, x), x.requires_grad_(False).requires_grad_(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_leaf_with_other_memory_is_no_input_of_earlier_graphs(change, hooked):
    """`grad()` doesn't find it there; `backward()` reaches it, as PyTorch does."""

    def run(L):
        x = L.ones(2, requires_grad=True)
        seen = []
        if hooked:
            x.register_hook(lambda gradient: seen.append(gradient.tolist()))
        before = x * 2
        CHANGES[change](L, x)
        found = []
        for of in (before, x * 3 if x.requires_grad else None):
            if of is None or of.is_complex():
                continue
            try:
                found.append(L.autograd.grad(of.sum(), x, retain_graph=True)[0].tolist())
            except RuntimeError as error:
                found.append("unused" if "to not have been used" in str(error) else "constant")
            try:
                L.autograd.backward(of.sum())
            except RuntimeError:
                found.append("refused")
            found.append(None if x.grad is None else x.grad.tolist())
        return found, seen

    assert run(ag) == run(torch)


def test_gradients_of_the_old_shape_do_not_reach_a_leaf_of_another():
    """PyTorch makes them its `.grad`."""
    x = ag.ones(2, requires_grad=True)
    before = x * 2
    _set_to(3)(ag, x)
    with pytest.raises(RuntimeError, match="shape"):
        before.sum().backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0] * 3


def test_a_leaf_moved_to_a_device_is_no_input_of_earlier_graphs():
    """As `Module.to` moves parameters."""
    x = ag.ones(2, requires_grad=True)
    before = x * 2
    with ag.testing.simulate():
        x.data = ag.ones(2, device="sim:0")
        assert ag.sync.grad(before.sum(), x, allow_unused=True) == (None,)
        ag.sync.backward((x * 3).sum())
        assert x.grad.tolist() == [3.0, 3.0]


def test_what_saved_the_old_memory_keeps_it():
    """And notices that the tensor has changed."""
    x = ag.ones(2)
    w = ag.ones(2, requires_grad=True)
    y = w * x
    with ag.no_grad():
        x.set_(ag.zeros(2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_what_has_no_memory_of_its_own_says_so():
    """A refused change leaves the tensor as it was."""
    x = ag.ones(2, 3)
    for change in (
        lambda: x[0].set_(ag.ones(2)),
        lambda: (ag.ones(2, requires_grad=True) * 2).set_(ag.ones(2)),
        lambda: x.set_(x.storage(), 1, (9,)),
        lambda: x.set_(x.storage(), -1),
    ):
        with pytest.raises(RuntimeError):
            change()
    assert x.tolist() == ag.ones(2, 3).tolist()
    with pytest.raises(RuntimeError, match="Cannot access storage"):
        ag.func.vmap(lambda x: x.storage())(ag.ones(2, 3))
    with pytest.raises(NotImplementedError, match="COO and CSR tensors are left out"):
        x.to_sparse()


def test_memory_of_another_dtype_is_taken_only_as_bytes():
    """As in PyTorch; else float64 would be read as twice as many float32."""
    wide = ag.ones(2, dtype=ag.float64)
    with pytest.raises(RuntimeError, match="Expected a Storage of type"):
        ag.ones(2).set_(wide.storage())
    assert ag.ones(2).set_(wide.untyped_storage()).tolist() == [0.0, 1.875] * 2
