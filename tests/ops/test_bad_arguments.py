"""Arguments that are no axis, no number, no flag or no shape raise what PyTorch raises."""

import numpy as np
import oracle
import pytest

import asyncgrad as ag
from asyncgrad.errors import OutOfMemoryError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

#: Calls on a library `T` and a matrix of its.
CALLS = {
    "a bool as the axis of a sum": lambda T, x: T.sum(x, True),
    "a bool as the axis of a line": lambda T, x: T.cumsum(x, True),
    "a bool as the axis of softmax": lambda T, x: T.softmax(x, True),
    "a bool among axes": lambda T, x: T.var(x, dim=(True,), correction=1),
    "a bool as the axis of cat": lambda T, x: T.cat([x], True),
    "bools as axes to exchange": lambda T, x: T.transpose(x, True, False),
    "no flag for argmax": lambda T, x: T.argmax(x, dim=0, keepdim=None),
    "a number as the flag of all": lambda T, x: T.all(x, dim=0, keepdim=1),
    "no flag for logsumexp": lambda T, x: T.logsumexp(x, 0, None),
    "no flag for a norm": lambda T, x: T.linalg.vector_norm(x, 2, 1, None),
    "an array as a correction": lambda T, x: T.var(x, dim=1, correction=np.ones(2)),
    "a tensor as a correction": lambda T, x: T.var(x, dim=1, correction=T.ones(1)),
    "a complex correction": lambda T, x: T.std(x, dim=1, correction=1j),
    "a bool as alpha": lambda T, x: T.add(x, x, alpha=True),
    "a scaled mask to subtract": lambda T, x: T.sub(x, x > 0, alpha=2),
    "an array as alpha": lambda T, x: T.sub(x, x, alpha=np.ones(2)),
    "a tensor with axes as alpha": lambda T, x: x.add(x, alpha=T.ones(1)),
    "a text as an order": lambda T, x: T.linalg.vector_norm(x, "two"),
    "no axes to contract": lambda T, x: T.tensordot(x, x, dims=None),
    "no operands": lambda T, x: T.einsum("i->", []),
    "a complex order": lambda T, x: T.linalg.norm(x, 1j),
    "a complex order of a condition": lambda T, x: T.linalg.cond(x, 1j),
    "numbers as how many points": lambda T, x: T.fft.rfftfreq(x),
    "a label beyond the letters": lambda T, x: T.einsum(x[0], [0, 52]),
    "a negative label": lambda T, x: T.einsum(x[0], [0, -1]),
    "a number as the equation": lambda T, x: T.einsum(3, x),
    "a text as a dtype": lambda T, x: T.softmax(x, 1, dtype="foo"),
    "integers for probabilities": lambda T, x: T.nn.functional.kl_div(x.long(), x),
    "a number for running means": lambda T, x: T.nn.functional.instance_norm(x[None], 0),
    "a power in double precision, in place": lambda T, x: (x * 1).float_power_(2),
    "a power in double precision, elsewhere": lambda T, x: T.float_power(x, 2, out=T.zeros(2, 3)),
    "a negative power of bytes": lambda T, x: x.byte() ** -3,
    "a negative power of integers by NumPy": lambda T, x: x.long() ** np.int64(-2),
    "a negative power of bytes by NumPy, in place": lambda T, x: x.byte().pow_(np.int8(-2)),
    "a power of bytes that is no byte, in place": lambda T, x: x.byte().pow_(300),
    "a bound with axes beside a number": lambda T, x: x.clamp(x, 2),
    "a learned bound beside a number": lambda T, x: x.clamp(T.tensor(0.5, requires_grad=True), 2),
    "a bool as the size": lambda T, x: T.zeros(True),
    "a slice from the end": lambda T, x: x.index_copy(0, T.tensor([-1]), x[:1]),
    "a sum from the end": lambda T, x: x.index_add(0, T.tensor([-1]), x[:1]),
    "a choice from the end": lambda T, x: x.index_select(0, T.tensor([-1])),
    "a maximum from the end": lambda T, x: x.index_reduce(0, T.tensor([-1]), x[:1], "amax"),
    "slices for one number": lambda T, x: T.zeros(()).index_add(0, T.tensor([0]), T.ones(1)),
    "a bool as the first size": lambda T, x: T.ones((True, 2)),
    "a bool as a shape": lambda T, x: x.view(True, 6),
    "a bool as the shape to expand to": lambda T, x: x.expand(True, 2, 3),
    "a bool among counts": lambda T, x: x.repeat(True, 2),
    "a bool as the first axis": lambda T, x: x.permute(False, True),
    "a value of reflected padding": lambda T, x: T.nn.functional.pad(x, (1, 1), "reflect", 2.0),
    "smooth lines": lambda T, x: T.nn.functional.interpolate(
        x[None], 5, mode="bilinear", antialias=True
    ),
    "a bool as padding": lambda T, x: T.nn.functional.pad(x, (True, 0)),
    "a bool as a window": lambda T, x: T.nn.functional.avg_pool1d(x, True),
    "a bool as a stride": lambda T, x: T.nn.functional.conv1d(x, x[:, None], stride=True),
    "a bool as how many rows": lambda T, x: T.eye(True),
    "a bool as how many numbers": lambda T, x: T.randperm(True),
    "a bool as how many steps": lambda T, x: T.linspace(0, 1, True),
    "a bool as how many draws": lambda T, x: T.multinomial(x, True),
    "a bool as how many classes": lambda T, x: T.nn.functional.one_hot(T.tensor([0]), True),
    "a bool as how many parts": lambda T, x: x.chunk(True),
    "a bool as the length of parts": lambda T, x: x.split(True),
    "a bool as the length": lambda T, x: x.narrow(0, 0, True),
    "a bool as an index": lambda T, x: x.select(0, True),
    "a bool as a diagonal": lambda T, x: x.tril(True),
    "a bool as which diagonal": lambda T, x: x.diagonal(True),
    "a bool as how many of the greatest": lambda T, x: x.topk(True),
    "a bool as which smallest": lambda T, x: x.kthvalue(True),
    "a bool as how many turns": lambda T, x: x.rot90(True),
    "a bool as the axis of a size": lambda T, x: x.size(True),
    "no axis of a size": lambda T, x: x.size(2),
    "a text as alpha of a product": lambda T, x: T.addmm(x[:, :2], x, x.mT, alpha="x"),
    "nothing as beta of a product": lambda T, x: T.addmv(x[:, 0], x, x[0], beta=None),
    "a list as a value": lambda T, x: T.addcmul(x, x, x, value=[1]),
    "a text as a value": lambda T, x: T.addcdiv(x, x, x, value="1"),
    "a number as a bias": lambda T, x: T.nn.functional.conv1d(x, T.ones(1, 2, 1), 1.0),
    "a number to turn": lambda T, x: T.flipud(1.0),
    "a number to mirror": lambda T, x: T.fliplr(1.0),
    "a number among columns": lambda T, x: T.column_stack([x, 1.0]),
    "a number as weights": lambda T, x: T.bincount(T.tensor([0]), 1.0),
    "a number as weights of bins": lambda T, x: T.histogram(x, 2, weight=1.0),
    "a tolerance as text": lambda T, x: T.linalg.pinv(x, rtol="1"),
    "a tolerance of a rank as text": lambda T, x: T.linalg.matrix_rank(x, atol="1"),
    "whether text is of inference": lambda T, x: T.is_inference("x"),
    "rows of boundaries": lambda T, x: T.bucketize(x, x),
    "one number as boundaries": lambda T, x: T.bucketize(x, T.tensor(1.0)),
    "one sorted number without an axis": lambda T, x: T.searchsorted(T.tensor(1.0), x),
    "unequal parts, counted by a tensor": lambda T, x: T.hsplit(x, T.tensor(2)),
    "no mask for rows": lambda T, x: x[T.ones(0, dtype=T.bool)],
    "no mask for columns": lambda T, x: x[..., None, T.ones(0, dtype=T.bool)],
    "no mask for a matrix": lambda T, x: x[T.ones(2, 0, dtype=T.bool)],
    "no mask to write at": lambda T, x: x.__setitem__(T.ones(0, dtype=T.bool), 1.0),
    "no mask to put at": lambda T, x: x.index_put((T.ones(0, 3, dtype=T.bool),), x[0]),
    "two indices for one slice to add": lambda T, x: x[0, 0].index_add(
        0, T.tensor([0, 0]), x[0, 0]
    ),
    "no index for one slice to add": lambda T, x: x[0, 0].index_add(
        0, T.tensor([], dtype=T.int64), x[0, 0]
    ),
    "two indices for one slice to reduce": lambda T, x: x[0, 0].index_reduce(
        0, T.tensor([0, 0]), x[0, 0], "amin"
    ),
    "no index for one slice to copy": lambda T, x: x[0, 0].index_copy(
        0, T.tensor([], dtype=T.int64), x[0, :1]
    ),
    "a number to repeat along an axis": lambda T, x: T.repeat_interleave(x[0, 0], 2, 0),
    "a matrix as the axis that is kept": lambda T, x: T.min(x, x, True),
    "a negative number of points": lambda T, x: T.fft.fft(x, -1),
    "a negative number of points of a half": lambda T, x: T.fft.irfft(x, -1),
    "truths in a gamma function": lambda T, x: T.mvlgamma(x > 0, 1),
    "the components of a number": lambda T, x: T.pca_lowrank(x[0, 0]),
    "the components of a line": lambda T, x: T.svd_lowrank(x[0]),
    "a mask of another shape": lambda T, x: x.masked_scatter(T.ones(2, dtype=T.bool), x),
    "an end of another dtype": lambda T, x: T.lerp(x, x.double(), 0.5),
    "more than there is memory": lambda T, x: T.ones(10**15),
    "more than there are addresses": lambda T, x: T.zeros(2**40, 2**40),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_argument_is_refused(name):
    with pytest.raises(Exception, match=r".") as expected:
        CALLS[name](torch, torch.ones(2, 3))
    with pytest.raises(oracle.error_class(expected.value)) as found:
        CALLS[name](ag, ag.ones(2, 3))
    assert len(str(found.value)) > 20


NUMBERS = [
    300, -1, -300, 1.7, -1.5, 1e6, 1e300, float("inf"), float("nan"), True, 1j, 2 + 0j,
]  # fmt: skip
FILLING = {
    "a diagonal": lambda T, x, n: x.copy_(T.zeros(2, 2, dtype=x.dtype).fill_diagonal_(n)[0]),
    "a constant": lambda T, x, n: T.nn.init.constant_(x, n),
    "fill_": lambda T, x, n: x.fill_(n),
    "an element": lambda T, x, n: x.__setitem__(0, n),
    "where a mask is": lambda T, x, n: x.__setitem__(T.tensor([True, False]), n),
    "at indices": lambda T, x, n: x.__setitem__(T.tensor([1]), n),
    "masked_fill_": lambda T, x, n: x.masked_fill_(T.tensor([True, False]), n),
    "masked_fill_ with a tensor": lambda T, x, n: x.masked_fill_(
        T.tensor([True, False]), T.tensor(n)
    ),
    "a tensor where a mask is": lambda T, x, n: x.__setitem__(T.tensor([True, False]), T.tensor(n)),
    "a tensor put where a mask is": lambda T, x, n: x.index_put_(
        (T.tensor([True, False]),), T.tensor([n])
    ),
    "full_like": lambda T, x, n: x.copy_(T.full_like(x, n)),
    "index_fill_": lambda T, x, n: (
        # PyTorch refuses all complex numbers, also those that are real.
        None if isinstance(n, complex) else x.index_fill_(0, T.tensor([1]), n)
    ),
}


@pytest.mark.parametrize("way", FILLING)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "float16", "float32", "bfloat16"])
def test_numbers_are_fitted_or_refused(dtype, way):
    """PyTorch's integers wrap around once below zero, and infinities are no overflow."""
    for number in NUMBERS:
        found = []
        for T in (torch, ag):
            x = T.zeros(2, dtype=getattr(T, dtype))
            try:
                FILLING[way](T, x, number)
            except Exception as error:
                found.append(oracle.error_class(error) if T is torch else type(error))
            else:
                found.append(str(x.tolist()))
        assert found[0] == found[1], number


def test_a_shape_without_memory_is_named_and_no_other_error_hidden():
    with pytest.raises(OutOfMemoryError, match=r"randn\(\): can't allocate memory"):
        ag.randn(2**40, 2**40)
    with pytest.raises(MemoryError):
        ag.full((10**15,), 1.0)
    with pytest.raises(RuntimeError, match="negative"):
        ag.ones(-1)


#: Unusual arguments that are good ones.
UNUSUAL = {
    "a tensor as the axis that is kept": lambda T, x: x.max(T.tensor(1), keepdim=True),
    "two slices for one number": lambda T, x: x[0, 0].index_copy(0, T.tensor([0, 0]), x[1, 1:]),
    "NumPy's name of the axis to count along": lambda T, x: T.count_nonzero(x > 1, axis=0),
    "no fractions as an index": lambda T, x: T.gather(x, 0, T.ones(0)),
    "a turned tensor of another size": lambda T, x: T.arange(6.0).reshape(2, 3).T.resize_(2, 2),
    "one number for one slice": lambda T, x: x[0, :1].index_copy(0, T.tensor([0]), x[1, 1] * 2),
    "a factor of booleans": lambda T, x: T.add(x > 0, x > 2, alpha=300),
    "NumPy's integer as an axis": lambda T, x: T.squeeze(x[None], np.int64(0)),
    "no axis to squeeze": lambda T, x: T.squeeze(x[None], []),
    "a number in a tensor as a correction": lambda T, x: T.var(x, correction=T.tensor(0.5)),
    "a number in a tensor as an order": lambda T, x: T.norm(x, T.tensor(3.0)),
    "a number in a tensor as alpha": lambda T, x: T.sub(x, x, alpha=T.tensor(3)),
    "numbers whose product is no int64": lambda T, x: T.add(x, 2**62, alpha=2),
    "a bool among sizes": lambda T, x: T.zeros(2, True),
    "NumPy's integer as a size": lambda T, x: T.zeros(np.int64(2), 1),
    "a tensor as a size": lambda T, x: x.view(T.tensor(3), 2),
    "a divergence from one number of a wider dtype": lambda T, x: T.nn.functional.kl_div(
        x, T.tensor(0.5, dtype=T.float64), reduction="sum"
    ),
    "a wider logarithm of one probability": lambda T, x: T.nn.functional.kl_div(
        T.tensor(0.5, dtype=T.float64), x, reduction="none", log_target=True
    ),
    "a tensor as a dimension": lambda T, x: T.mvlgamma(x + 2, T.tensor(2)),
    "NumPy's integer as a dimension": lambda T, x: T.mvlgamma(x.long() + 2, np.int64(2)),
    "nothing expanded, in place": lambda T, x: x[:, :0].expand(3, 2, 0).add_(1),
    "NumPy's integer as how many parts": lambda T, x: T.vsplit(x, np.int64(2)),
    "a tensor as how many parts": lambda T, x: T.vsplit(x, T.tensor(2)),
    "no slice of a number": lambda T, x: x[0, 0].index_copy(
        0, T.tensor([], dtype=T.int64), x[0, :0]
    ),
    "the bits of a leaf": lambda T, x: x.requires_grad_().view(T.int32),
    "a bound in a tensor beside a number": lambda T, x: x.clamp(T.tensor(0.5), 2),
    "a bound of integers in a tensor": lambda T, x: T.clamp(x.int(), -1, T.tensor(0)),
    "a number that is not 0": lambda T, x: T.where(x[0, 0]),
    "a bool as alpha of bools": lambda T, x: T.add(x > 0, x > 0, alpha=True),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_arguments_are_taken(name):
    oracle.compare(UNUSUAL[name](torch, torch.ones(2, 3)), UNUSUAL[name](ag, ag.ones(2, 3)))


def test_a_number_turned_round_is_itself(request):
    # PyTorch warns once in a process, and other tests may have made it do so.
    torch.set_warn_always(True)
    request.addfinalizer(lambda: torch.set_warn_always(False))
    for T in (torch, ag):
        with pytest.warns(UserWarning, match="mT is deprecated on 0-D tensors"):
            assert T.tensor(2.0).mT.item() == 2


def test_axes_are_exchanged_in_place_under_the_same_conditions():
    with pytest.raises(RuntimeError, match=r"t\(\) expects a tensor with <= 2 dimensions, but got"):
        ag.ones(2, 3, 4).t_()


def test_what_bins_can_not_be_is_said_with_what_helps():
    for values, words in [
        (ag.ones(2), r"got input.dtype = float32. Convert it with .to\(\)."),
        (ag.ones(2, 2).long(), r"got input.shape = \(2, 2\). Flatten it."),
        (ag.tensor([3, -2]), r"got input.min\(\) = -2."),
    ]:
        with pytest.raises(RuntimeError, match=rf"1-d non-negative integral inputs.*{words}"):
            ag.bincount(values)


def test_the_strides_that_pairs_of_numbers_lack_are_said():
    with pytest.raises(RuntimeError, match=r"last dimension with stride 1, not 2, but got"):
        ag.view_as_complex(ag.ones(2, 4)[:, ::2])
    with pytest.raises(RuntimeError, match=r"not \(3, 1\), but .* Make it contiguous first"):
        ag.view_as_complex(ag.ones(3, 3)[:, :2])


def test_a_size_that_can_not_be_is_said_once():
    with pytest.raises(ValueError, match=r"positive output size, but got size = \[1, 1, -2, 2\].$"):
        ag.nn.functional.affine_grid(ag.ones(1, 2, 3), [1, 1, -2, 2])
