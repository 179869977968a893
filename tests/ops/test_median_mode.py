"""Medians, modes and elements by their rank; neighbours that are equal; other sizes in place.

Which of several equal elements an index names is nobody's promise: values are compared, and that
the index leads to the value.
"""

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

NAN = float("nan")
ROWS = {
    "distinct": [[3.0, 1.0, 2.0, 5.0], [0.0, -1.0, 7.0, 6.0]],
    "ties": [[2.0, 1.0, 2.0, 1.0], [0.0, 0.0, 0.0, 1.0]],
    "nan": [[NAN, 1.0, 2.0, 0.0], [NAN, 3.0, NAN, 1.0]],
    "one": [[4.0], [5.0]],
}
ALONG = {
    "median": lambda T, x, dim, keepdim: T.median(x, dim, keepdim),
    "nanmedian": lambda T, x, dim, keepdim: T.nanmedian(x, dim, keepdim),
    "mode": lambda T, x, dim, keepdim: T.mode(x, dim, keepdim),
    "kthvalue": lambda T, x, dim, keepdim: T.kthvalue(x, 1, dim, keepdim),
    "kthvalue last": lambda T, x, dim, keepdim: x.kthvalue(x.shape[dim], dim, keepdim),
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", ALONG)
def test_values_along_an_axis_are_pytorchs(name, dim, keepdim, rows):
    if name == "mode" and rows == "nan":
        pytest.skip("PyTorch counts NaN as it happens to be sorted")
    theirs = ALONG[name](torch, torch.tensor(ROWS[rows]), dim, keepdim)
    x = ag.tensor(ROWS[rows], requires_grad=True)
    ours = ALONG[name](ag, x, dim, keepdim)
    assert type(ours).__name__ == name.partition(" ")[0]
    np.testing.assert_array_equal(ours.values.detach().numpy(), theirs.values.numpy())
    index = ours.indices if keepdim else ours.indices.unsqueeze(dim)
    picked = ag.take_along_dim(x, index, dim)
    kept = ours.values if keepdim else ours.values.unsqueeze(dim)
    np.testing.assert_array_equal(picked.detach().numpy(), kept.detach().numpy())
    ours.values.sum().backward()
    expected = np.zeros(x.shape)
    np.put_along_axis(expected, index.numpy(), 1.0, dim)
    assert x.grad.tolist() == expected.tolist()


def test_the_index_of_a_mode_is_that_of_its_last_element():
    """As in PyTorch, while lines are so short that it sorts them stably."""
    lines = [[2.0, 1.0, 2.0, 1.0, 3.0], [0.0, 3.0, 0.0, 0.0, 3.0], [4.0, 5.0, 6.0, 6.0, 6.0]]
    found = ag.mode(ag.tensor(lines)).indices.tolist()
    assert found == torch.mode(torch.tensor(lines)).indices.tolist() == [3, 3, 4]


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_the_median_of_nothing_is_pytorchs(name, dtype):
    """NaN, or the least integer."""
    ours, theirs = [getattr(T.ones(0, dtype=getattr(T, dtype)), name)().item() for T in (ag, torch)]
    np.testing.assert_equal(ours, theirs)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_the_median_of_all_shares_its_gradient_among_ties(name, rows):
    results = []
    for T in (torch, ag):
        x = T.tensor(ROWS[rows], requires_grad=True)
        y = getattr(x, name)()
        y.backward()
        results.append((y.item(), x.grad.tolist(), y.grad_fn.name()))
    np.testing.assert_array_equal(results[1][0], results[0][0])
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-6)
    assert results[1][2] == results[0][2]


def test_gradcheck():
    x = ag.tensor([[3.0, 1.0, 2.0], [0.5, 4.0, -1.0]], dtype=ag.float64, requires_grad=True)
    for function in (
        ag.median,
        ag.nanmedian,
        lambda x: ag.median(x, 1).values,
        lambda x: ag.kthvalue(x, 2, 0).values,
        lambda x: ag.mode(x, 1).values,
    ):
        assert ag.autograd.gradcheck(function, x, check_forward_ad=True)
        assert ag.autograd.gradgradcheck(function, x)


BAD = {
    "no rank": lambda T: T.tensor([1.0, 2.0]).kthvalue(0),
    "too high a rank": lambda T: T.tensor([1.0, 2.0]).kthvalue(3),
    "empty": lambda T: T.ones(0, 3).median(0),
    "no mode": lambda T: T.ones(0, 3).mode(0),
    "truths": lambda T: T.tensor([True]).median(),
    "complex": lambda T: T.tensor([1j]).mode(),
    "keepdim alone": lambda T: T.ones(2).median(keepdim=True),
    "keepdim of a maximum of all": lambda T: T.max(T.ones(2), keepdim=True),
    "keepdim of a minimum of all": lambda T: T.ones(2).min(None, True),
    "no bool": lambda T: T.ones(2).median(0, 1),
    "sorted as number": lambda T: T.ones(2).topk(1, sorted=0),
    "largest as text": lambda T: T.ones(2).topk(1, 0, "a"),
    "descending as number": lambda T: T.ones(2).sort(0, 1),
    "stable as number": lambda T: T.sort(T.ones(2), stable=1),
    "keepdim of argmax": lambda T: T.ones(2).argmax(0, 1),
    "keepdim of all": lambda T: T.ones(2).all(0, 1),
    "keepdim of logsumexp": lambda T: T.ones(2).logsumexp(0, 1),
    "keepdim of a norm": lambda T: T.linalg.vector_norm(T.ones(2), 2, 0, 1),
    "unbiased as number": lambda T: T.ones(2).var(0, unbiased=1),
    "requires_grad as text": lambda T: T.ones(2, requires_grad="a"),
    "requires_grad as number": lambda T: T.ones(2, requires_grad=1),
    "mse of complex": lambda T: T.nn.functional.mse_loss(T.tensor([1j]), T.tensor([1j])),
    "huber of complex": lambda T: T.nn.functional.huber_loss(T.tensor([1j]), T.tensor([1j])),
    "kl of complex": lambda T: T.nn.functional.kl_div(
        T.tensor([1j]), T.tensor([1j]), reduction="sum"
    ),
    "resized with a gradient": lambda T: T.ones(2, requires_grad=True).resize_(1),
    "resized with history": lambda T: (T.ones(2, requires_grad=True) * 1).resize_(1),
    "resized below nothing": lambda T: T.ones(2).resize_(-1),
}


@pytest.mark.parametrize("name", BAD)
def test_what_pytorch_refuses_is_refused(name):
    oracle.check_refused(BAD[name])


CONSECUTIVE = {
    "elements": ([1, 1, 2, 2, 3, 1], None),
    "of rows": ([[1, 1], [1, 2]], None),
    "rows": ([[1, 1], [1, 1], [2, 1]], 0),
    "columns": ([[1, 1, 2], [1, 1, 1]], 1),
    "one": (3, None),
    "none": ([], None),
}


@pytest.mark.parametrize("name", CONSECUTIVE)
def test_equal_neighbours_are_joined_as_in_pytorch(name):
    values, dim = CONSECUTIVE[name]
    results = [
        [
            part.tolist()
            for part in T.unique_consecutive(
                T.tensor(values), return_inverse=True, return_counts=True, dim=dim
            )
        ]
        for T in (torch, ag)
    ]
    assert results[1] == results[0]
    assert ag.tensor(values).unique_consecutive(dim=dim).tolist() == results[0][0]


def _resized(T):
    """Smaller, larger again, as another tensor: what there was stays."""
    x = T.arange(4.0)
    view = x[:2]
    notes = [x.resize_(2, 2).tolist(), x.resize_((2,)).tolist(), x.resize_(4).tolist()]
    notes += [x.resize_as_(T.ones(2, 1)).tolist(), x._version, view.tolist(), list(x.shape)]
    x.fill_(7)
    return [*notes, view.tolist(), list(x.resize_(3, 2).shape), x[0].tolist()]


def test_sizes_change_in_place_as_in_pytorch():
    assert _resized(ag) == _resized(torch)


@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
def test_parts_along_axes_of_no_and_one_element_are_compared(name):
    shapes = ((), (0,), (2, 1), (2, 0), (0, 2), (0, 0), (5, 1, 5), (1, 0, 3))
    for shape in shapes:
        for dim in (None, *range(len(shape))):

            def program(T, shape=shape, dim=dim):
                x = T.ones(shape, dtype=T.float64)
                return getattr(T, name)(x, return_inverse=True, return_counts=True, dim=dim)

            try:
                expected = program(torch)
            except RuntimeError:
                oracle.check_refused(program)
            else:
                oracle.compare(expected, program(ag))


#: Functions that PyTorch has no derivative of.
UNDERIVED = {
    "unique": lambda T, x: T.unique(x),
    "unique_consecutive": lambda T, x: T.unique_consecutive(x, dim=0),
    "heaviside": lambda T, x: T.heaviside(x, x),
    "heaviside's values": lambda T, x: T.heaviside(x.detach(), x),
    "zeta": lambda T, x: T.special.zeta(x, 2.0),
}


@pytest.mark.parametrize("name", UNDERIVED)
def test_a_derivative_that_there_is_none_of_is_missed_when_it_is_needed(name):
    """Not by the call, whose result may be looked at, nor in silence."""
    for T in (torch, ag):
        out = UNDERIVED[name](T, T.tensor([2.0, 3.0], requires_grad=True))
        assert out.requires_grad
        with pytest.raises(RuntimeError, match=r"derivative .* not implemented"):
            out.sum().backward()
        F = T.autograd.forward_ad
        with F.dual_level(), pytest.raises(NotImplementedError, match="forward AD"):
            UNDERIVED[name](T, F.make_dual(T.ones(2), T.ones(2)))


def test_the_shape_that_a_tensor_has_is_no_change():
    for T in (torch, ag):
        x = T.ones(2, 2)
        assert x.resize_(2, 2) is x
        assert x._version == 0
        leaf = T.ones(2, 2, requires_grad=True)
        with T.inference_mode():
            assert leaf.resize_(2, 2) is leaf
        with pytest.raises(RuntimeError, match="require grad"):
            leaf.resize_(2, 2)


def test_a_layout_that_is_there_is_not_copied():
    for T in (torch, ag):
        x = T.ones(2, 3, 4, 5).permute(0, 3, 1, 2)
        assert x.contiguous(memory_format=T.channels_last) is x
        assert x.contiguous() is not x


def test_the_length_of_repeated_elements_may_be_a_tensor():
    for T in (torch, ag):
        x = T.arange(2)
        assert x.repeat_interleave(T.tensor([1, 2]), output_size=T.tensor(3)).tolist() == [0, 1, 1]
