"""Calls of every function of the table, written once for both libraries, on arrays of any size.

A case says what its arguments are with one letter each:

    x y z   matrices; u: between -1 and 1, p: positive, a: between 0 and 1,
            d: without repetition
    X Y Z   matrices whose product is taken; B: a batch of them; K: a batch of heads; m: a bias
    M       one row
    v w     vectors as long as a matrix's row; V: a vector with as many elements as a matrix
    I W k   images, the weights of a convolution over them, and one number for each channel
    S D     signals, and the weights of a convolution over them
    i e j   places within rows, as a matrix; the same without repetition; places as a vector
    l q b   integers, integers, booleans

What stands after a bar (`"x y | p"`) needs no gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


class Case(NamedTuple):
    """One function with its arguments."""

    name: str
    #: `call(library, nn.functional of the library, arguments...)`: a tensor or several.
    call: Callable[..., Any]
    #: A letter for each argument; those after a bar need no gradient.
    arguments: str = "x"
    #: Whether results are random or undefined, so that only their shapes can be compared.
    random: bool = False


class Sizes(NamedTuple):
    """How large the arguments are."""

    #: Rows and columns of a matrix.
    side: int
    #: Rows and columns of a matrix that is multiplied or decomposed.
    cubic: int
    #: Matrices of a batch, and heads of one.
    batch: int
    heads: tuple[int, int, int, int]
    images: tuple[int, int, int, int]
    signals: tuple[int, int, int]


#: 16 elements, and 4 M elements in the largest array (of attention: of its scores).
TINY = Sizes(4, 4, 1, (1, 2, 2, 4), (1, 1, 4, 4), (1, 2, 8))
LARGE = Sizes(2048, 512, 4, (4, 4, 512, 64), (16, 16, 128, 128), (16, 16, 16384))


def arguments(case: Case, sizes: Sizes) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The arrays of a case: those that need gradients, and those that need none."""
    random = np.random.default_rng(0)
    wanted, _, other = case.arguments.partition("|")
    return tuple([_array(letter, sizes, random) for letter in part.split()]
                 for part in (wanted, other))  # fmt: skip


def _array(letter: str, sizes: Sizes, random: np.random.Generator) -> np.ndarray:
    n, m = sizes.side, sizes.cubic
    channels = sizes.images[1]
    shapes: dict[str, tuple[int, ...]] = {
        "X": (m, m), "Y": (m, m), "Z": (m, m), "B": (sizes.batch, m, m), "K": sizes.heads,
        "v": (n,), "w": (n,), "V": (n * n,), "I": sizes.images, "k": (channels,),
        "W": (channels, channels, 3, 3), "S": sizes.signals,
        "D": (sizes.signals[1], sizes.signals[1], 3), "m": (m,), "M": (1, m),
    }  # fmt: skip
    shape = shapes.get(letter, (n, n))
    if letter == "u":
        return random.uniform(-0.9, 0.9, shape).astype(np.float32)
    if letter == "a":
        return random.uniform(0.1, 0.9, shape).astype(np.float32)
    if letter == "p":
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    if letter == "d":
        return random.permutation(n * n).reshape(shape).astype(np.float32)
    if letter == "i":
        return random.integers(0, n, shape)
    if letter == "j":
        return random.permutation(n)
    if letter == "e":
        return np.stack([random.permutation(n) for _ in range(n)])
    if letter in "lq":
        return random.integers(1, 5, shape)
    if letter == "b":
        return random.random(shape) < 0.5
    return random.standard_normal(shape).astype(np.float32)


def _methods(names: str, letters: str = "x") -> tuple[Case, ...]:
    """Functions of the library that take tensors and nothing else."""

    def made(name: str) -> Case:
        return Case(name, lambda L, F, *xs: getattr(L, name)(*xs), letters)

    return tuple(map(made, names.split()))


def _layers(names: str, letters: str = "x") -> tuple[Case, ...]:
    """The same of `nn.functional`."""

    def made(name: str) -> Case:
        return Case(f"nn.functional.{name}", lambda L, F, *xs: getattr(F, name)(*xs), letters)

    return tuple(map(made, names.split()))


def _changed(name: str, letters: str, change: Callable[..., Any]) -> Case:
    """A function that changes a tensor, here a copy of its first argument."""

    def call(L: Any, F: Any, x: Any, *more: Any) -> Any:
        y = x.clone()
        change(L, y, *more)
        return y

    return Case(name, call, letters)


def _set(L: Any, x: Any, v: Any) -> None:
    x[1] = v


def _recurrent(kind: str, **options: Any) -> Callable[..., Any]:
    """A recurrent layer with weights of its own, made once for each library and size."""
    layers: dict[Any, Any] = {}

    def call(L: Any, F: Any, x: Any, *more: Any) -> Any:
        width = x.shape[-1]
        key = L, width
        if key not in layers:
            layers[key] = getattr(L.nn, kind)(width, width, batch_first=True, **options)
            for weight in layers[key].parameters():
                L.nn.init.constant_(weight, 0.001)
        return layers[key](x.unsqueeze(0))[0]

    return call


UNARY = (
    *_methods(
        "neg positive abs sign exp exp2 expm1 square sin cos tan atan sinh cosh tanh sigmoid erf "
        "floor ceil round trunc isnan isinf isfinite logical_not sgn"
    ),
    *_methods("log log2 log10 log1p sqrt rsqrt reciprocal", "p"),
    *_methods("asin acos", "u"),
    Case("clamp", lambda L, F, x: L.clamp(x, -0.5, 0.5)),
    Case("clamp (min)", lambda L, F, x: L.clamp(x, min=0.1)),
    Case("clamp (max)", lambda L, F, x: L.clamp(x, max=0.1)),
    Case("clamp (tensors)", lambda L, F, x, y, z: L.clamp(x, y, z), "x | y z"),
    Case("clamp (min tensor)", lambda L, F, x, y: L.clamp(x, min=y), "x y"),
    Case("clamp (max tensor)", lambda L, F, x, y: L.clamp(x, max=y), "x y"),
    Case("round (decimals)", lambda L, F, x: L.round(x, decimals=2)),
    *_methods("bitwise_not", "| l"),
    Case("complex", lambda L, F, x, y: L.complex(x, y), "x y"),
    Case("polar", lambda L, F, x, y: L.polar(x, y), "p x"),
)
BINARY = (
    *_methods("add sub mul maximum minimum atan2", "x y"),
    *_methods("div fmod remainder pow", "p p"),
    *_methods("floor_divide", "| p p"),
    *_methods("eq ne lt le gt ge logical_and logical_or logical_xor", "x y"),
    *_methods("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift", "| l q"),
    Case("add (row)", lambda L, F, x, v: x + v, "x v"),
    Case("mul (row)", lambda L, F, x, v: x * v, "x v"),
    Case("add (number)", lambda L, F, x: x + 2.5),
    Case("sub (number)", lambda L, F, x: x - 2.5),
    Case("mul (number)", lambda L, F, x: x * 2.5),
    Case("div (number)", lambda L, F, x: x / 2.5),
    Case("pow (number)", lambda L, F, x: x**3),
    Case("fmod (number)", lambda L, F, x: L.fmod(x, 0.4)),
    Case("remainder (number)", lambda L, F, x: x % 0.4),
    Case("ne (number)", lambda L, F, x: x != 0.5),
    Case("div (trunc)", lambda L, F, x, y: L.div(x, y, rounding_mode="trunc"), "p p"),
    Case("where", lambda L, F, x, y, b: L.where(b, x, y), "x y | b"),
    Case("masked_fill", lambda L, F, x, b: L.masked_fill(x, b, 0.5), "x | b"),
    Case("__radd__", lambda L, F, x: 2.5 + x),
    Case("__rsub__", lambda L, F, x: 2.5 - x),
    Case("__rmul__", lambda L, F, x: 2.5 * x),
    Case("__rdiv__", lambda L, F, x: 2.5 / x, "p"),
    Case("__rpow__", lambda L, F, x: 2.5**x),
)
REDUCTION = (
    *_methods("sum mean"),
    *[
        Case(f"{name} ({lines})", lambda L, F, x, name=name, dim=dim: getattr(L, name)(x, dim))
        for name in ("sum", "mean", "amax", "amin", "logsumexp")
        for lines, dim in (("rows", 1), ("columns", 0))
    ],
    *_methods("max min argmax argmin all any norm var std"),
    *_methods("prod", "u"),
    Case("prod (rows)", lambda L, F, x: L.prod(x, 1), "u"),
    Case("var (rows)", lambda L, F, x: L.var(x, 1)),
    Case("std (columns)", lambda L, F, x: L.std(x, 0)),
    Case("max (rows)", lambda L, F, x: L.max(x, 1)),
    Case("min (columns)", lambda L, F, x: L.min(x, 0)),
    Case("argmax (rows)", lambda L, F, x: L.argmax(x, 1)),
    Case("argmin (columns)", lambda L, F, x: L.argmin(x, 0)),
    Case("all (rows)", lambda L, F, b: L.all(b, 1), "| b"),
    Case("any (columns)", lambda L, F, b: L.any(b, 0), "| b"),
    Case("norm (rows)", lambda L, F, x: L.norm(x, dim=1)),
    Case("norm (nuclear)", lambda L, F, x: L.norm(x, "nuc"), "X"),
    Case("linalg.vector_norm", lambda L, F, x: L.linalg.vector_norm(x)),
    Case("linalg.vector_norm (rows, 3)", lambda L, F, x: L.linalg.vector_norm(x, 3, 1)),
    Case("cumsum", lambda L, F, x: L.cumsum(x, 1)),
    Case("cumsum (columns)", lambda L, F, x: L.cumsum(x, 0)),
)
SHAPE = (
    Case("reshape", lambda L, F, x: L.reshape(x, (-1,))),
    Case("view", lambda L, F, x: x.view(-1)),
    *_methods("flatten ravel t clone"),
    Case("unflatten", lambda L, F, x: x.unflatten(1, (2, -1))),
    Case("squeeze", lambda L, F, x: L.squeeze(x, 0), "M"),
    Case("unsqueeze", lambda L, F, x: L.unsqueeze(x, 0)),
    Case("transpose", lambda L, F, x: L.transpose(x, 0, 1)),
    Case("permute", lambda L, F, x: L.permute(x, (1, 0))),
    Case("T", lambda L, F, x: x.T),
    Case("mT", lambda L, F, x: x.mT),
    Case("movedim", lambda L, F, x: L.movedim(x, 0, 1)),
    Case("expand", lambda L, F, v: v.expand(len(v), -1), "v"),
    Case("broadcast_to", lambda L, F, v: L.broadcast_to(v, (len(v), len(v))), "v"),
    Case("cat", lambda L, F, x, y: L.cat((x, y)), "x y"),
    Case("cat (columns)", lambda L, F, x, y: L.cat((x, y), 1), "x y"),
    Case("stack", lambda L, F, x, y: L.stack((x, y)), "x y"),
    Case("split", lambda L, F, x: L.split(x, len(x) // 2)),
    Case("chunk", lambda L, F, x: L.chunk(x, 2)),
    Case("unbind", lambda L, F, x: L.unbind(x.view(2, -1))),
    Case("contiguous", lambda L, F, x: x.t().contiguous()),
    Case("flip", lambda L, F, x: L.flip(x, (0,))),
    Case("flip (columns)", lambda L, F, x: L.flip(x, (1,))),
    Case("roll", lambda L, F, x: L.roll(x, 1, 0)),
    Case("tile", lambda L, F, v: L.tile(v, (len(v), 1)), "v"),
    Case("repeat", lambda L, F, v: v.repeat(len(v), 1), "v"),
    *_methods("tril triu"),
    *_methods("diagonal"),
    Case("diag", lambda L, F, v: L.diag(v), "v"),
    Case("narrow", lambda L, F, x: L.narrow(x, 0, 1, len(x) // 2)),
    Case("select", lambda L, F, x: L.select(x, 0, 1)),
    Case("to", lambda L, F, x: x.to(L.float64)),
    Case("float", lambda L, F, x: x.double().float()),
    Case("double", lambda L, F, x: x.double()),
    Case("nn.functional.pad", lambda L, F, x: F.pad(x, (1, 1, 1, 1))),
    Case("nn.functional.pad (reflect)", lambda L, F, x: F.pad(x[None], (1, 1), mode="reflect")),
)
INDEX = (
    Case("__getitem__", lambda L, F, x: x[1:]),
    Case("__getitem__ (places)", lambda L, F, x, j: x[j], "x | j"),
    Case("__getitem__ (mask)", lambda L, F, x, b: x[b], "x | b"),
    Case("index_select", lambda L, F, x, j: L.index_select(x, 0, j), "x | j"),
    Case("gather", lambda L, F, x, i: L.gather(x, 1, i), "x | i"),
    Case("take_along_dim", lambda L, F, x, i: L.take_along_dim(x, i, 1), "x | i"),
    Case("index_put", lambda L, F, x, y, j: L.index_put(x, (j,), y), "x y | j"),
    Case("index_put (add)", lambda L, F, x, y, j: L.index_put(x, (j,), y, True), "x y | j"),
    Case("index_add", lambda L, F, x, y, j: L.index_add(x, 0, j, y), "x y | j"),
    Case("scatter", lambda L, F, x, y, e: L.scatter(x, 1, e, y), "x y | e"),
    Case("scatter (number)", lambda L, F, x, i: L.scatter(x, 1, i, 0.5), "x | i"),
    Case("scatter_add", lambda L, F, x, y, i: L.scatter_add(x, 1, i, y), "x y | i"),
    Case("masked_select", lambda L, F, x, b: L.masked_select(x, b), "x | b"),
    Case("nonzero", lambda L, F, b: L.nonzero(b), "| b"),
    Case("nn.functional.embedding", lambda L, F, x, j: F.embedding(j, x), "x | j"),
    Case(
        "nn.functional.embedding (sparse)",
        lambda L, F, x, j: F.embedding(j, x.clone(), sparse=True),
        "x | j",
    ),
    Case("nn.functional.one_hot", lambda L, F, j: F.one_hot(j, len(j)), "| j"),
    Case(
        "nn.functional.embedding (scaled)",
        lambda L, F, x, j: F.embedding(j, x, scale_grad_by_freq=True),
        "x | j",
    ),
    Case(
        "scatter (multiply)",
        lambda L, F, x, i: L.scatter(x, 1, i, 2.0, reduce="multiply"),
        "| x i",
    ),
)
PRODUCTS = (
    *_methods("matmul mm", "X Y"),
    *_methods("bmm", "B B"),
    *_methods("mv", "x v"),
    *_methods("dot inner", "V V"),
    *_methods("outer", "v w"),
    Case("einsum", lambda L, F, x, y: L.einsum("ij,kj->ik", x, y), "X Y"),
    Case("einsum (batch)", lambda L, F, x, y: L.einsum("bij,bjk->bik", x, y), "B B"),
    Case("tensordot", lambda L, F, x, y: L.tensordot(x, y, 1), "X Y"),
    *_methods("addmm", "X Y Z"),
    Case("__rmatmul__", lambda L, F, x, y: y.__rmatmul__(x), "X Y"),
    Case("nn.functional.linear", lambda L, F, x, w, b: F.linear(x, w, b), "X Y m"),
    Case("nn.functional.linear (no bias)", lambda L, F, x, w: F.linear(x, w), "X Y"),
    Case("nn.functional.conv1d", lambda L, F, s, d: F.conv1d(s, d, padding=1), "S D"),
    Case("nn.functional.conv2d", lambda L, F, i, w: F.conv2d(i, w, padding=1), "I W"),
    Case("nn.functional.conv2d (bias)", lambda L, F, i, w, k: F.conv2d(i, w, k, 2), "I W k"),
    Case("nn.functional.max_pool2d", lambda L, F, i: F.max_pool2d(i, 2), "I"),
    Case("nn.functional.avg_pool2d", lambda L, F, i: F.avg_pool2d(i, 2), "I"),
    Case("nn.functional.max_pool2d (3, 1)", lambda L, F, i: F.max_pool2d(i, 3, 1, 1), "I"),
    *_layers("scaled_dot_product_attention", "K K K"),
    Case(
        "nn.functional.scaled_dot_product_attention (causal)",
        lambda L, F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "K K K",
    ),
)
RECURRENT = (
    *[Case(f"nn.{kind}", _recurrent(kind), "X") for kind in ("RNN", "LSTM", "GRU")],
    Case("nn.RNN (relu)", _recurrent("RNN", nonlinearity="relu"), "X"),
)
ACTIVATION = (
    *_layers("relu leaky_relu elu gelu silu softplus logsigmoid"),
    Case("nn.functional.gelu (tanh)", lambda L, F, x: F.gelu(x, approximate="tanh")),
    Case("softmax", lambda L, F, x: L.softmax(x, 1)),
    Case("log_softmax", lambda L, F, x: L.log_softmax(x, 1)),
    Case("softmax (columns)", lambda L, F, x: L.softmax(x, 0)),
)
NORMALISATION = (
    Case(
        "nn.functional.layer_norm",
        lambda L, F, x, v, w: F.layer_norm(x, v.shape, v, w),
        "x v w",
    ),
    Case(
        "nn.functional.batch_norm",
        lambda L, F, i, v, w: F.batch_norm(i, None, None, v, w, True),
        "I k k",
    ),
    Case(
        "nn.functional.batch_norm (moments)",
        lambda L, F, i, v, w, a, b: F.batch_norm(i, a, b.exp(), v, w),
        "I k k | k k",
    ),
    Case("nn.functional.rms_norm", lambda L, F, x, v: F.rms_norm(x, v.shape, v), "x v"),
    Case("nn.functional.dropout", lambda L, F, x: F.dropout(x, 0.3), random=True),
)
LOSS = (
    *_layers("mse_loss l1_loss smooth_l1_loss huber_loss", "x y"),
    *_layers("cross_entropy", "x | j"),
    *_layers("nll_loss", "x | j"),
    *_layers("binary_cross_entropy", "a | a"),
    *_layers("binary_cross_entropy_with_logits", "x | a"),
    Case("nn.functional.kl_div", lambda L, F, x, y: F.kl_div(x, y, reduction="sum"), "x | p"),
    Case(
        "nn.functional.kl_div (log)",
        lambda L, F, x, y: F.kl_div(x, y, reduction="sum", log_target=True),
        "x | u",
    ),
    *_layers("cosine_similarity", "x y"),
    Case(
        "nn.functional.cross_entropy (probabilities)",
        lambda L, F, x, p: F.cross_entropy(x, p),
        "x | p",
    ),
    Case(
        "nn.functional.cross_entropy (weights)",
        lambda L, F, x, j, v: F.cross_entropy(x, j, v.abs()),
        "x | j v",
    ),
)
SORT = (
    *_methods("sort argsort", "d"),
    Case("topk", lambda L, F, x: L.topk(x, 2), "d"),
)
RANDOM = tuple(
    case._replace(random=True)
    for case in (
        *_methods("bernoulli", "| a"),
        Case("normal", lambda L, F, x: L.normal(0.0, 1.0, tuple(x.shape)), "| x"),
        Case("normal (tensors)", lambda L, F, x, p: L.normal(x, p), "| x p"),
        Case("uniform", lambda L, F, x: x.uniform_(), "| x"),
        Case("randint", lambda L, F, x: L.randint(0, 9, tuple(x.shape)), "| x"),
        Case("randn", lambda L, F, x: L.randn(tuple(x.shape)), "| x"),
        Case("rand", lambda L, F, x: L.rand(tuple(x.shape)), "| x"),
        Case("randperm", lambda L, F, x: L.randperm(x.numel()), "| x"),
        *_methods("rand_like randn_like", "| x"),
        *_methods("poisson", "| p"),
        Case("binomial", lambda L, F, x, p: L.binomial(x, p), "| p a"),
    )
)
CREATION = (
    Case("zeros", lambda L, F, x: L.zeros(tuple(x.shape)), "| x"),
    Case("ones", lambda L, F, x: L.ones(tuple(x.shape)), "| x"),
    Case("full", lambda L, F, x: L.full(tuple(x.shape), 2.5), "| x"),
    Case("empty", lambda L, F, x: L.empty(tuple(x.shape)), "| x", random=True),
    *_methods("zeros_like ones_like", "| x"),
    Case("full_like", lambda L, F, x: L.full_like(x, 2.5), "| x"),
    Case("empty_like", lambda L, F, x: L.empty_like(x), "| x", random=True),
    Case("arange", lambda L, F, x: L.arange(x.numel()), "| x"),
    Case("linspace", lambda L, F, x: L.linspace(0, 1, x.numel()), "| x"),
    Case("eye", lambda L, F, x: L.eye(len(x)), "| x"),
)
TENSORS = (
    Case("tensor", lambda L, F, x: L.tensor([1.5, 2.5]), "| x"),
    Case("as_tensor", lambda L, F, x: L.as_tensor(x), "| x"),
    Case("asarray", lambda L, F, x: L.asarray(x), "| x"),
    Case("from_numpy", lambda L, F, x: L.from_numpy(_ARRAY), "| x"),
    Case("detach", lambda L, F, x: x.detach().clone()),
    Case("requires_grad_", lambda L, F, x: x.detach().requires_grad_()),
    Case("item", lambda L, F, v: v[0].item(), "| v"),
    Case("tolist", lambda L, F, v: v.tolist(), "| v"),
    Case("numpy", lambda L, F, x: x.numpy(), "| x"),
    _changed("__setitem__", "x v", _set),
    _changed("iadd", "x y", lambda L, x, y: x.add_(y)),
    _changed("isub", "x y", lambda L, x, y: x.sub_(y)),
    _changed("imul", "x y", lambda L, x, y: x.mul_(y)),
    _changed("itruediv", "x p", lambda L, x, y: x.div_(y)),
    _changed("ipow", "p", lambda L, x: x.pow_(2)),
    _changed("mul_ (view)", "x v", lambda L, x, v: x[1].mul_(v)),
)
_ARRAY = np.ones(16, np.float32)

CASES = (
    *UNARY, *BINARY, *REDUCTION, *SHAPE, *INDEX, *PRODUCTS, *RECURRENT, *ACTIVATION,
    *NORMALISATION, *LOSS, *SORT, *RANDOM, *CREATION, *TENSORS,
)  # fmt: skip
