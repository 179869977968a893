"""Functions that go another way on large arrays, or on small ones, give what PyTorch gives."""

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad.devices.fp_errors import BUFFER
from asyncgrad.ops import columns, fused
from asyncgrad.ops.table import activation, convolution

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

_RANDOM = np.random.default_rng(0)
_X, _Y = (_RANDOM.standard_normal((70, 300)) for _ in range(2))
_SQUARE = _RANDOM.standard_normal((1100, 290))
_ALONG = _RANDOM.integers(0, 70, (60, 300))
_ONCE = np.stack([_RANDOM.permutation(70) for _ in range(300)], 1)
_ROWS = _RANDOM.integers(0, 70, 70)
_PAIR = _RANDOM.integers(0, 70, 5000), _RANDOM.integers(-300, 300, 5000)
_FEW, _MANY = (_RANDOM.standard_normal((n, 2, 9, 9)) for n in (3, 40))


def _both(call, *arrays, more=()):
    """What a call gives in both libraries, and the gradients by its arrays."""
    results = []
    for library in (ag, torch):
        leaves = [library.from_numpy(array.copy()).requires_grad_() for array in arrays]
        y = call(library, *leaves, *[library.from_numpy(array) for array in more])
        weights = np.random.default_rng(1).standard_normal(tuple(y.shape))
        y.backward(library.from_numpy(weights))
        results.append([t.detach().numpy() for t in (y, *[leaf.grad for leaf in leaves])])
    return results


def _assert_equal(call, *arrays, more=()):
    for ours, theirs in zip(*_both(call, *arrays, more=more), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "call",
    [
        lambda L, x, i, once: L.gather(x, 0, i),
        lambda L, x, i, once: L.gather(x.t(), 1, i.t()),
        lambda L, x, i, once: L.take_along_dim(x, once, 0),
        lambda L, x, i, once: L.scatter(x, 0, once, x * 2),
        lambda L, x, i, once: L.scatter(x, 0, once, 0.5),
        lambda L, x, i, once: L.scatter_add(x, 0, i, (x * 2)[:60]),
    ],
)
def test_many_elements_by_number_along_an_axis(call):
    """They are numbered through the array."""
    _assert_equal(call, _X, more=(_ALONG, _ONCE))


@pytest.fixture(params=[False, True], ids=["by the library", "with vectors"])
def _vectors(request, monkeypatch):
    """What kernels take NumPy's `expm1` and `log1p` to be computed with."""
    monkeypatch.setattr(activation, "VECTORS", request.param)


@pytest.mark.usefixtures("_vectors")
@pytest.mark.parametrize("name", ["softplus", "logsigmoid"])
def test_small_logarithms_are_precise(name):
    """In single precision 1 + exp(x) loses most of a small exponential."""
    x = np.linspace(-18, -1, 5000, dtype=np.float32) * (-1 if name == "logsigmoid" else 1)
    ours = getattr(ag.nn.functional, name)(ag.from_numpy(x))
    exact = getattr(torch.nn.functional, name)(torch.from_numpy(x).double())
    np.testing.assert_allclose(ours.numpy(), exact.numpy(), rtol=5e-7)


@pytest.mark.usefixtures("_vectors")
def test_small_differences_of_exponentials_are_precise():
    """elu, which is exp(x) - 1 there."""
    x = -np.concatenate([np.logspace(-37, 2, 5000), [0.0, np.inf]]).astype(np.float32)
    expected = np.expm1(x.astype(np.float64)).astype(np.float32)
    found = ag.nn.functional.elu(ag.from_numpy(x)).numpy()
    np.testing.assert_array_max_ulp(found, expected, 3)


@pytest.mark.parametrize("shape", [(40, 64), (7, 3, 100), (1, 5000), (5000, 1), (20, 0)])
def test_the_greatest_elements_of_rows(shape):
    """Whole rows of infinities and rows with NaN among them."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x[:1] = -np.inf
    x[-1:, ..., :3] = np.nan
    for y, dim in ((x, x.ndim - 1), (x.swapaxes(0, -1), x.ndim - 1), (x, 0)):
        if y.shape[dim]:
            expected = y.max(axis=dim, keepdims=True)
            np.testing.assert_array_equal(activation.line_maxima(y, dim), expected)


def test_many_elements_at_pairs_of_places():
    """Some counted from the end, some twice."""
    _assert_equal(lambda L, x, i, j: x[i, j], _X, more=_PAIR)
    _assert_equal(lambda L, x, i, j: L.index_put(x, (i, j % 300), x[i, j], True), _X, more=_PAIR)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_long_rows_are_added_one_by_one(dtype):
    """Rows that are taken twice get both gradients."""
    places = _ROWS.astype(dtype)
    _assert_equal(lambda L, x, i: L.index_select(x, 0, i), _X, more=(places,))
    _assert_equal(lambda L, x, y, i: L.index_add(x, 0, i, y), _X, _Y, more=(places,))


@pytest.mark.parametrize(
    "index",
    [np.s_[5:900], np.s_[-50:], np.s_[:, 3:], np.s_[5:900, :7], np.s_[None, 4:], np.s_[4:, None],
     np.s_[5:900:2], np.s_[:2000], ()],
    ids=str,
)  # fmt: skip
def test_gradients_of_slices(index):
    """Where these are whole rows, only the others are set to zero."""
    _assert_equal(lambda L, x: x[index], _SQUARE)


@pytest.mark.parametrize("signs", [1, -1])
def test_rows_that_are_picked_once(signs):
    """Their gradients are copied, not added."""
    places = _RANDOM.permutation(1100)[:700] * signs
    _assert_equal(lambda L, x, i: x[i], _SQUARE, more=(places,))


@pytest.mark.parametrize("array", [_SQUARE, _SQUARE.T, _FEW], ids=["rows", "columns", "batch"])
def test_masks_of_all_elements(array):
    """They are turned into numbers of elements."""
    mask = _RANDOM.random(array.shape) < 0.5
    _assert_equal(lambda L, x, m: x[m], array, more=(mask,))
    _assert_equal(lambda L, x, m: L.index_put(x, (m,), x[m] * 2), array, more=(mask,))
    masks = [L.from_numpy(mask) for L in (ag, torch)]
    found = [(each.nonzero(), *each.nonzero(as_tuple=True)) for each in masks]
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert found[0][0].stride() == found[1][0].stride()


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("array", [_SQUARE, _SQUARE.T, _X.reshape(70, 30, 10)])
def test_lines_across_memory(array, dim):
    """Sums are made of long slices, and extremes are looked for in a copy."""
    _assert_equal(lambda L, x: L.cumsum(x, dim), array)
    holes = array.copy()
    holes[7, 5] = np.nan
    for name in ("max", "min"):
        ours, theirs = (getattr(L.from_numpy(holes), name)(dim) for L in (ag, torch))
        np.testing.assert_array_equal(ours.values.numpy(), theirs.values.numpy())
        np.testing.assert_array_equal(ours.indices.numpy(), theirs.indices.numpy())
        ours, theirs = (getattr(L.from_numpy(holes), f"arg{name}")(dim, True) for L in (ag, torch))
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("places", [_ROWS, _ALONG, _ALONG[:0]], ids=["vector", "matrix", "none"])
def test_rows_of_many_zeros_with_a_one(places):
    ours, theirs = (L.nn.functional.one_hot(L.from_numpy(places), 90) for L in (ag, torch))
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("diagonal", [0, -3, 70, -900, 2000, -2000])
@pytest.mark.parametrize("name", ["tril", "triu"])
def test_triangles_of_large_matrices(name, diagonal):
    """They are copied a few rows at a time."""
    for array in (_SQUARE, _SQUARE.T, _SQUARE[:, :3], _FEW.reshape(3, 2, 81)[:, :, None]):
        _assert_equal(lambda L, x: getattr(L, name)(x, diagonal), array)


def test_even_distances_in_several_blocks():
    for steps in (100_000, 70_001):
        ours, theirs = (L.linspace(-2, 3, steps, dtype=L.float64) for L in (ag, torch))
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-14, atol=1e-15)
        assert ours[-1] == 3
        assert ag.linspace(-2, 3, steps, dtype=ag.int64).tolist() == ours.long().tolist()


def test_an_index_out_of_range_is_refused_however_large_the_array():
    """Numbering elements must not lead into another row."""
    x = ag.from_numpy(_X)
    with pytest.raises(IndexError, match="out of bounds"):
        x[ag.tensor([0, 1]), ag.tensor([0, 300])]


@pytest.mark.parametrize(
    "call",
    [
        lambda L, x: x.t(),
        lambda L, x: x.t().contiguous(),
        lambda L, x: x.t() * 2,
        lambda L, x: x[::2].t().clone(),
    ],
)
@pytest.mark.parametrize("columns", [290, 256])
def test_large_matrices_the_other_way_round(call, columns):
    """They are copied by tiles, whichever way they lie; some share lines of the cache."""
    _assert_equal(call, _SQUARE[:, :columns].copy())


@pytest.mark.parametrize("images", [_FEW, _MANY], ids=["few", "many"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("padding", "dilation"), [(0, 1), (1, 2)])
def test_pooling_and_convolution_of_few_and_many_images(images, stride, padding, dilation):
    """Few are taken at once, many in blocks, or side by side."""
    weight = _RANDOM.standard_normal((4, 1, 3, 3))

    def conv(L, x, w):
        return L.nn.functional.conv2d(x, w, None, stride, padding, dilation, 2)

    def max_pool(L, x):
        return L.nn.functional.max_pool2d(x, 3, stride, padding, dilation, ceil_mode=True)

    def avg_pool(L, x):
        return L.nn.functional.avg_pool2d(x, 3, stride, padding, True, dilation == 1)

    _assert_equal(conv, images, weight)
    _assert_equal(max_pool, images)
    _assert_equal(avg_pool, images)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_of_images_side_by_side_in_several_parts(monkeypatch, stride):
    """The last part has fewer images, and what the one before left in the memory is not used."""
    monkeypatch.setattr(columns, "COLUMNS", 1 << 14)
    monkeypatch.setattr(columns, "_SMALL_PRODUCT", 3000)
    _forget_parts()
    weight = _RANDOM.standard_normal((6, 1, 3, 3))

    def conv(L, x, w):
        return L.nn.functional.conv2d(x, w, None, stride, (1, 0), 1, 2)

    _assert_equal(conv, _MANY, weight)
    _forget_parts()


def _forget_parts():
    columns._parts.cache_clear()
    columns.side_by_side.cache_clear()


@pytest.mark.parametrize("outs", [4, 700])
@pytest.mark.parametrize("shape", [(9,), (5, 6), (3, 4, 4)])
@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 0)])
def test_convolution_of_images_side_by_side(outs, shape, stride, padding):
    """Rows of windows share memory if there are some, next to each other, and few weights."""
    images = _RANDOM.standard_normal((80, 4, *shape))
    weight = _RANDOM.standard_normal((outs, 2, *(3, 2, 1)[: len(shape)]))
    padded = (padding, *[0] * (len(shape) - 1))

    def conv(L, x, w):
        return getattr(L.nn.functional, f"conv{len(shape)}d")(x, w, None, stride, padded, 1, 2)

    ones = (1,) * len(shape)
    geometry = columns.Geometry((stride,) * len(shape), tuple((n, n) for n in padded), ones, 2)
    image = geometry.out_shape(shape, weight.shape[2:])
    plan = columns.side_by_side(images.shape, outs, weight.shape[2:], image, geometry)
    assert (plan.kernel == weight.shape[2:]) == (len(shape) > 1 and outs == 4 and stride == 1)
    _assert_equal(conv, images, weight)


@pytest.mark.parametrize("outs", [12, 33, 80])
@pytest.mark.parametrize(("kernel", "dilation"), [((3, 3), 1), ((2, 3), 2), ((3, 1), 1)])
@pytest.mark.parametrize("stride", [(1, 1), (1, 2)])
def test_products_with_the_columns_of_a_kernel_are_added_up(outs, kernel, dilation, stride):
    """The windows of a column lie in the images as they are, if these are moved over in ones."""
    images = _RANDOM.standard_normal((40, 16, 6, 7))
    weight = _RANDOM.standard_normal((outs, 16, *kernel))
    lengths = stride, (1, 2), (1, dilation)

    def conv(L, x, w):
        return L.nn.functional.conv2d(x, w, None, *lengths)

    geometry = columns.Geometry(stride, ((1, 1), (2, 2)), (1, dilation), 1)
    image = geometry.out_shape(images.shape[2:], kernel)
    plan = columns.side_by_side(images.shape, outs, kernel, image, geometry)
    assert plan.apart == (outs < 80 and stride == (1, 1))
    _assert_equal(conv, images, weight)


@pytest.mark.parametrize("stride", [2, (1, 2), (3, 2)])
@pytest.mark.parametrize("padding", [0, 1, (0, 2)])
@pytest.mark.parametrize(("kernel", "dilation"), [((4, 3), 1), ((5, 3), (1, 2)), ((4, 1), 1)])
def test_gradients_by_inputs_share_one_layout_at_all_strides(
    stride, padding, kernel, dilation, monkeypatch
):
    """There is no convolution for the places of each remainder of a stride."""
    weight = _RANDOM.standard_normal((17, 5, *kernel))

    def conv(L, x, w):
        return L.nn.functional.conv2d(x, w, None, stride, padding, dilation)

    monkeypatch.setattr(convolution, "_convolution", None)
    _assert_equal(conv, _RANDOM.standard_normal((40, 5, 11, 9)), weight)


@pytest.mark.parametrize("padding", [0, 1, (2, 1)])
@pytest.mark.parametrize(("kernel", "dilation"), [((3, 3), 1), ((2, 3), (1, 2)), ((3, 1), 1)])
@pytest.mark.parametrize("biased", [False, True])
def test_both_gradients_of_a_convolution_are_made_of_the_same_windows(
    padding, kernel, dilation, biased, monkeypatch
):
    """Neither of the functions that compute one of them is called."""
    for name in ("convolution_input", "convolution_weight"):
        monkeypatch.delattr(ag.zeros(1)._metadata.F, name)
    weight = _RANDOM.standard_normal((33, 17, *kernel))
    bias = [_RANDOM.standard_normal(33)] * biased

    def conv(L, x, w, b=None):
        return L.nn.functional.conv2d(x, w, b, 1, padding, dilation)

    _assert_equal(conv, _RANDOM.standard_normal((40, 17, 6, 7)), weight, *bias)


@pytest.mark.parametrize(("batch", "parts"), [(1, []), (40, ["x", "weight", "bias"])])
def test_gradients_of_small_images_are_computed_by_one_thread(batch, parts, monkeypatch):
    """To hand one to another thread takes longer than to compute it."""
    handed = []

    def in_pieces(compute, pieces):
        handed.extend(pieces)
        for piece in pieces:
            compute(piece)

    monkeypatch.setattr(fused, "in_pieces", in_pieces)

    def conv(L, x, w, b):
        return L.nn.functional.conv2d(x, w, b)

    shapes = [(batch, 8, 16, 40), (8, 8, 4, 4), (8,)]
    _assert_equal(conv, *map(_RANDOM.standard_normal, shapes))
    assert handed == parts


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride", [(1, 1), (2, 3)])
@pytest.mark.parametrize("shape", [(10, 8, 5, 7), (2, 8, 300, 200)])
def test_kernels_of_one_element_see_the_places_at_their_strides(groups, stride, shape, monkeypatch):
    """They need neither images side by side nor windows, for any number of parts."""
    monkeypatch.setattr(convolution, "windows_beside", None)
    monkeypatch.setattr(convolution, "windows_of", None)
    weight = _RANDOM.standard_normal((6, 8 // groups, 1, 1))

    def conv(L, x, w):
        return L.nn.functional.conv2d(x, w, None, stride, 0, 1, groups)

    _assert_equal(conv, _RANDOM.standard_normal(shape), weight)


def test_images_of_one_place_are_multiplied_at_once(monkeypatch):
    """The product of each image would have many times more elements than the image."""
    products = []

    def windows_beside(*arguments):
        products.append(arguments)
        return columns.windows_beside(*arguments)

    monkeypatch.setattr(convolution, "windows_beside", windows_beside)

    def conv(L, x, w):
        return L.nn.functional.conv2d(x, w)

    _assert_equal(conv, *map(_RANDOM.standard_normal, [(40, 8, 1, 1), (32, 8, 1, 1)]))
    assert len(products) == 1


def test_pooling_where_everything_is_minus_infinity():
    """The peak is an element of the window, never what was added at the sides."""
    x = ag.full((1, 1, 4, 4), -np.inf).requires_grad_()
    ag.nn.functional.max_pool2d(x, 2).sum().backward()
    assert x.grad.sum().item() == 4


@pytest.mark.parametrize(
    "shape",
    [(40, 30), (20, 30, 7), (3, 30, 70), (70, 2, 5000), (3000, 30), (2001, 30), (4000, 16, 3)],
)
@pytest.mark.parametrize("wanted", [(0,), (0, 1), (1, 2), (0, 1, 2), (2,)])
def test_batch_norm_for_each_choice_of_inputs(shape, wanted):
    """Its gradients are made of the same two sums, of lines of one image or of several."""
    arrays = (_RANDOM.standard_normal(shape), *_RANDOM.standard_normal((2, shape[1])))
    results = []
    for library in (ag, torch):
        parts = [library.from_numpy(array.copy()) for array in arrays]
        for place in wanted:
            parts[place].requires_grad_()
        x, w, b = parts
        y = library.nn.functional.batch_norm(x, None, None, w, b, True)
        weights = library.arange(shape[1]).reshape(-1, *[1] * (len(shape) - 2))
        (y * y * weights).sum().backward()
        results.append([parts[place].grad.numpy() for place in wanted])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_of_a_large_image_in_parts(stride):
    """Products of more than a million multiplications are cut."""
    images = _RANDOM.standard_normal((2, 8, 64, 64))
    weight = _RANDOM.standard_normal((16, 8, 3, 3))

    def conv(L, x, w):
        return L.nn.functional.conv2d(x, w, None, stride, 1)

    _assert_equal(conv, images, weight)


@pytest.mark.parametrize("rows", [5, 1500])
@pytest.mark.parametrize("wanted", ["xwb", "xw", "wb", "x", "w", "b"])
def test_gradients_of_a_layer_norm_in_one_block_and_in_several(rows, wanted):
    """Those by the weight and the bias are added up while that by the input is computed."""
    x = _RANDOM.standard_normal((rows, 2, 100))
    parameters = _RANDOM.standard_normal((2, 2, 100))

    def norm(L, *leaves):
        given = dict(zip(wanted, leaves, strict=True))
        x_, w, b = [given.get(key, constants[L][key]) for key in "xwb"]
        return L.nn.functional.layer_norm(x_, (2, 100), w, b)

    arrays = dict(zip("xwb", (x, *parameters), strict=True))
    constants = {L: {k: L.from_numpy(v) for k, v in arrays.items()} for L in (ag, torch)}
    _assert_equal(norm, *[arrays[key] for key in wanted])


@pytest.mark.parametrize("rows", [384, 385, 386])
@pytest.mark.parametrize(
    "call",
    [
        lambda L, x, w, b: L.nn.functional.layer_norm(x, (120,), w, b),
        lambda L, x, w, b: L.nn.functional.rms_norm(x, (120,), w) + b,
        lambda L, x, w, b: L.nn.functional.batch_norm(
            x.reshape(-1, 24, 5), None, None, w[:24], b[:24], True
        ),
    ],
)
def test_many_short_rows_have_parameters(call, rows):
    """NumPy goes through several as one, if their number is even."""
    x, w, b = (_RANDOM.standard_normal(shape) for shape in ((rows, 120), 120, 120))
    _assert_equal(call, x, w, b)


def test_short_rows_become_lines_that_numpy_does_not_copy_operands_for():
    x, row = np.ones((384, 120)), np.arange(120.0)
    lines, operand = fused.in_lines(x, row)
    assert operand.size >= BUFFER
    assert np.shares_memory(lines, x)
    np.testing.assert_array_equal((lines * operand).reshape(x.shape), x * row)
    for plain in (x[:385:3], x[:, ::2], np.ones((385, 120))):
        assert fused.in_lines(plain, row[: plain.shape[1]])[0] is plain
