"""Recurrent layers: one op for a whole sequence in one direction.

The inputs' part of the gates (`z`, their product with the layer's weight for all steps) is computed
outside, in one product. Only the LSTM computes it itself, to lay it out gate by gate. The rest runs
step by step: the state times `w`. Kernels save intermediate values in the list `kept`, so that the
backward pass has little to compute. The rules recompute all of it with differentiable functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat, starmap
from math import prod
from typing import Any

import numpy as np

from asyncgrad.core.variable import Variable
from asyncgrad.devices import pieces
from asyncgrad.devices.cores import divided, in_turns
from asyncgrad.devices.pieces import pipelined
from asyncgrad.devices.pool import POOL
from asyncgrad.ops.fused import Once, compiled, share, silent
from asyncgrad.ops.op import Op, Part, fused_together, operation
from asyncgrad.ops.table.linalg import product_cost, total_of_rows
from asyncgrad.records import NamedTuple
from asyncgrad.types import Array, Library, Namespace, Value


def _library(xp: Library) -> Any:
    """The library for steps: NumPy without its pool, because each result has a given `out`."""
    return getattr(xp, "unpooled", xp)


#: Up to this many multiplications OpenBLAS multiplies matrices in place. For more it first copies
#: both into an order of its own, which for a few rows takes half as long as the product.
_SMALL = 1_000_000
#: With fewer rows in a step it is slower to read the inputs' weights in each step.
_FEW = 8
#: The block counts into which a weight may be cut to stay below; narrower blocks cost more.
_CUTS = (1, 2, 4, 8, 16)
_NARROW = 32
#: Arrays with fewer elements need no alignment.
_TINY = 1024
#: Two threads share a pass with so many steps or more, of so many multiplications or more: for
#: shorter calls of NumPy they would wait for the GIL as long as they compute.
_LONG, _LARGE = 16, 2_000_000
#: After so many steps a thread offers its core to others, above all to that of an event loop.
_TURN = 2
#: Products of several steps have so many multiplications and rows at least, and there are so many
#: at most. They are added up, which takes as long as to multiply some 30 rows.
_PART, _ROWS, _PARTS = 1 << 25, 256, 8


def _cut(xp: Library, rows: int, depth: int, columns: int) -> int:
    """The number of column blocks to stay below `_SMALL`; 0 if that is not worth it."""
    if xp.ndarray is np.ndarray:
        for count in _CUTS:
            width = columns // count
            if rows * depth * width <= _SMALL:
                return count if count * width == columns and (width >= _NARROW or count == 1) else 0
    return 0


def _columns(x: Array, count: int) -> Any:
    """A view with the last axis split into blocks: a stack of matrices for each matrix."""
    return x.reshape(*x.shape[:-1], count, x.shape[-1] // count).swapaxes(-3, -2)


def _room(xp: Library, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """An uninitialised array; unless it is tiny, it starts at a cache line."""
    if xp.ndarray is np.ndarray and prod(shape) >= _TINY:
        return POOL.take(shape, dtype)
    return xp.empty(shape, dtype)


def _laid_out(xp: Library, weight: Array) -> Any:
    """A contiguous copy, aligned: a product takes 1.5 times as long if rows cross cache lines."""
    copy = _room(xp, weight.shape, weight.dtype)
    copy[...] = weight
    return copy


def _times(xp: Library, weight: Array, products: Array) -> tuple[Callable[..., Any], Any, Any]:
    """How to multiply by a weight: a function, the weight's layout for it, and its outputs.

    For each step the output is a row of `products`, or a stack of blocks of that row.
    """
    cut = _cut(xp, products.shape[-2], *weight.shape)
    weight = _laid_out(xp, weight)
    xp = _library(xp)
    if cut > 1:
        return xp.matmul, _columns(weight, cut), _columns(products, cut)
    return xp.dot, weight, products


def _for_steps(
    xp: Library, name: str, first: Sequence[Array], each: Sequence[Any], last: Sequence[Array] = ()
) -> Callable[[int], object] | None:
    """How to compute a step, given its number, by a device's kernel; None where there is none.

    Its `first` and its `last` arguments are the same for all steps. `each` has arrays with an
    argument for each step; or a first state and an array of states, for the state before each step.
    """
    sample = each[1]
    if name not in xp.compiled or sample.dtype.char not in "fd" or not len(sample):
        return None
    first, last = ([array.reshape(-1) for array in arrays] for arrays in (first, last))
    own = zip(*[_flat(xp, arrays) for arrays in each], strict=True)
    arguments = [(*first, *views, *last) for views in own]
    kernel = compiled(xp, name, *arguments[0])
    return None if kernel is NotImplemented else lambda t: kernel(*arguments[t])


def _flat(xp: Library, arrays: Any) -> list[Any]:
    """The flat array of each step; those that a kernel writes to are contiguous."""
    if isinstance(arrays, tuple):
        first, states = arrays
        return [first.reshape(-1), *_flat(xp, states)[:-1]]
    rows = arrays.reshape(len(arrays), -1)
    return [*(rows if rows[0].flags.c_contiguous else xp.ascontiguousarray(rows))]


def _loop(
    xp: Library, name: str, product: tuple[Any, Any, Any], first: Sequence[Array],
    each: Sequence[Any], last: Sequence[Array] = (), copied: Iterable[tuple[Any, Any]] = (),
) -> Callable[[slice, range], None] | None:  # fmt: skip
    """How to compute steps and their products for some rows in compiled calls; None without these.

    They let other threads run meanwhile. Arguments are those of `_for_steps`; some of the last ones
    may be another array in each step.

    Args:
        product: what a step multiplies, the weight, and the output, as `each` or the same for all.
        copied: arrays that are copied before the product, each with its copy.
    """
    if not xp.compiled or len(each[1]) < 2:
        return None
    compute = compiled(xp, f"{name}s", product, [*copied], *first, *each, *last)
    if compute is NotImplemented:
        return None

    def run(rows: slice, steps: range) -> None:
        parts = divided(len(steps), _TURN) if pieces.threads else (slice(None),)
        for part in parts:
            compute(rows, steps[part])

    return run


def _for_rows(
    xp: Library, compute: Callable[[slice], object], rows: Array, multiplications: int, cut: bool
) -> None:
    """Compute all steps for some rows of the batch, which are independent, at a time.

    If they are cut, a second thread may take half of the rows. Where NumPy computes, one thread
    takes a tenth longer for two halves than for all rows. The first axes of `rows` are those of the
    steps and the batch; a step has so many multiplications.
    """
    steps, batch = rows.shape[:2]
    ends = [0, batch]
    if cut and steps >= _LONG and multiplications >= _LARGE:
        ends.insert(1, batch // 2)
    share(xp, compute, [*starmap(slice, pairwise(ends))], 2)


def _parts(xp: Library, steps: int, batch: int, multiplications: int) -> list[slice]:
    """Slices of the steps, last ones first, whose products are computed together.

    On a device there is one: only another thread gains by several.
    """
    least = max(_PART // max(1, multiplications), -(-_ROWS // max(1, batch)))
    length = max(1, -(-steps // _PARTS), least) if xp.ndarray is np.ndarray else steps
    return [slice(max(0, end - length), end) for end in range(steps, 0, -length)]


def _in_turns(items: Sequence[Any]) -> Iterator[Any]:
    """Go through the steps; while an engine lives, offer the core now and then."""
    return in_turns(items, _TURN) if pieces.threads else iter(items)


def _by_gate(xp: Library, order: tuple[int, ...], *parts: Array) -> Any:
    """Split adjacent gates into one matrix for each gate; the order puts the tanh gate last.

    The parts' matrices are put below one another. Logistic gates are halved, because the logistic
    function of x is tanh(x / 2) / 2 + 1 / 2.
    """
    size = parts[0].shape[-1] // len(order)
    rows = sum(part.shape[-2] for part in parts)
    gates = _room(xp, (*parts[0].shape[:-2], len(order), rows, size), parts[0].dtype)
    start = 0
    for part in parts:
        end = start + part.shape[-2]
        for place, source in enumerate(order):
            own = part[..., source * size : (source + 1) * size]
            gates[..., place, start:end, :] = own
        start = end
    gates[..., :-1, :, :] *= 0.5
    return gates


def _steps(F: Namespace, x: Value) -> list[Any]:
    """The steps of a sequence, taken from halves of halves.

    The gradient of a part is put into zeros of what the part was taken from: so all steps together
    need a few arrays as large as the sequence, where one such array for each step would be many.
    """
    count = x.shape[0]
    if count < 2:
        return [x[0]] if count else []
    half = count // 2
    return [*_steps(F, F.narrow(x, 0, 0, half)), *_steps(F, F.narrow(x, 0, half, count - half))]


def _previous(product: Callable[..., Any], states: Array, first: Array, gradients: Array) -> Any:
    """Sum the products of each step's gradient and the state before it."""
    steps, _, width = gradients.shape
    total = product(gradients[0].T, first)
    if steps > 1:
        before = states[: steps - 1].reshape(-1, first.shape[1])
        total += product(gradients[1:].reshape(-1, width).T, before)
    return total


# -- a cell for differentiable functions, and what follows from it --------------------------------


class _Cell(NamedTuple):
    """A step, and its derivative.

    Gates get `a` from the inputs, and `q` from the state: its product with `w`, and the bias.
    """

    #: `step(F, q, a, *state)`: the state's tensors afterwards, and the local derivatives.
    step: Callable[..., Any]
    #: `pull(F, w, slopes, *back)`: the gradients by q, by a, and by the state's tensors before.
    pull: Callable[..., Any]
    #: `push(F, slopes, q, a, *moved)`: the tangents of the state's tensors afterwards, given those
    #: of q, of a (None if it has none), and of the state's tensors before.
    push: Callable[..., Any]


def _of_inputs(F: Namespace, given: Mapping[str, Value]) -> Any:
    """What gates get from the inputs, for all steps."""
    if "z" in given:
        return given["z"]
    x, v = given["x"], given["v"]
    rows = F.reshape(x, (-1, v.shape[1])) @ F.adjoint(v)
    return F.reshape(rows, (*x.shape[:2], v.shape[0]))


def _walk(F: Namespace, cell: _Cell, given: Mapping[str, Value]) -> Iterator[tuple[Any, Any]]:
    """For each step the state before it, which is multiplied by w, and the local derivatives."""
    state = [given[name] for name in "hc" if name in given]
    turned, z, bias = F.adjoint(given["w"]), _of_inputs(F, given), given.get("b")
    if "x" in given:
        # Gates read only the sum of both parts: the bias is added once for all steps.
        z, bias = z + bias, None
    for a in _steps(F, z):
        before, q = state[0], state[0] @ turned
        state, slopes = cell.step(F, q if bias is None else q + bias, a, *state)
        yield before, slopes


def _derivatives(cell: _Cell, kernel: Callable[..., Any], inputs: str) -> dict[str, Any]:
    """The fields of a row for its derivatives; `kernel` computes gradients of real dtypes."""
    names = tuple(inputs.split())

    def rule(F: Namespace, g: Value, wanted: tuple[str, ...], *values: Value) -> Any:
        given = dict(zip(names, values, strict=False))
        rows = list(_walk(F, cell, given))
        # After the states of all steps come the other tensors of the last one.
        own = _steps(F, g)
        back = [F.zero(given["c" if "c" in given else "h"]), *own[len(rows) :]]
        by_q: list[Any] = []
        by_a: list[Any] = []
        for t in reversed(range(len(rows))):
            q, a, *back = cell.pull(F, given["w"], rows[t][1], back[0] + own[t], *back[1:])
            by_q.append(q)
            by_a.append(a)
        products = F.cat(by_q[::-1], 0)
        by_z = products if by_a[0] is by_q[0] else F.cat(by_a[::-1], 0)
        made: dict[str, Callable[[], Any]] = {
            "h": lambda: back[0],
            "c": lambda: back[1],
            "w": lambda: F.adjoint(products) @ F.cat([before for before, _ in rows], 0),
            "b": lambda: F.sum(products, (0,), False),
            "z": lambda: F.reshape(by_z, given["z"].shape),
            "x": lambda: F.reshape(by_z @ given["v"], given["x"].shape),
            "v": lambda: F.adjoint(by_z) @ F.reshape(given["x"], (-1, given["x"].shape[2])),
        }
        return tuple([made[key]() for key in wanted])

    def push(key: str, F: Namespace, t: Value, *values: Value) -> Any:
        given = dict(zip(names, values, strict=True))
        moved = [t if key == name else F.zero(given[name]) for name in "hc" if name in given]
        by_inputs = key in {"z", "x", "v"}
        inputs = _steps(F, _of_inputs(F, {**given, key: t})) if by_inputs else repeat(None)
        turned = F.adjoint(given["w"])
        found = []
        for (before, slopes), a in zip(_walk(F, cell, given), inputs, strict=False):
            q = moved[0] @ turned
            if key == "w":
                q = q + before @ F.adjoint(t)
            elif key == "b":
                q = q + t
            moved = cell.push(F, slopes, q, a, *moved)
            found.append(moved[0])
        return F.stack([*found, *moved[1:]], 0)

    pushes = {key: Part(names, partial(push, key)) for key in names}
    return {"pushes": pushes, "together": fused_together(kernel, rule)}


def _gates(x: Value, count: int) -> list[Any]:
    size = x.shape[-1] // count
    return [x[:, k * size : (k + 1) * size] for k in range(count)]


def _sum(q: Value, a: Value | None) -> Any:
    return q if a is None else q + a


# -- the plain cell: h' = f(z + h w') -------------------------------------------------------------


def _plain_cell(activation: str) -> _Cell:
    def through(F: Namespace, g: Value, h: Value) -> Any:
        return g * (1 - h * h) if activation == "tanh" else F.rectified(g, h)

    def step(F: Namespace, q: Value, a: Value, h: Value) -> Any:
        h = getattr(F, activation)(a + q)
        return (h,), h

    def pull(F: Namespace, w: Value, h: Value, back: Value) -> Any:
        part = through(F, back, h)
        return part, part, part @ w

    return _Cell(step, pull, lambda F, h, q, a, moved: (through(F, _sum(q, a), h),))


def _plain(activation: str) -> Op:
    is_tanh = activation == "tanh"

    @silent
    def forward(xp: Library, z: Array, h: Array, w: Array) -> Any:
        out = xp.empty((*z.shape[:2], w.shape[1]), z.dtype)
        times, weight, products = _times(xp, w.T, out)
        name, each = f"rnn_{activation}_step", (z, out)
        loop = _loop(xp, name, ((h, out), weight, products), (), each)
        if loop is not None:
            _for_rows(xp, lambda own: loop(own, range(len(z))), out, h.size * len(w), True)
            return out
        step = _for_steps(xp, name, (), each)
        xp = _library(xp)
        for t in range(len(z)):
            state = out[t]
            times(h, weight, products[t])
            h = state
            if step is not None:
                step(t)
                continue
            state += z[t]
            if is_tanh:
                xp.tanh(state, state)
            else:
                xp.maximum(state, 0, out=state)
        return out

    @silent
    def kernel(
        xp: Library, g: Array, wanted: tuple[str, ...], z: Array, h: Array, w: Array, out: Array
    ) -> Any:
        back = xp.zeros(h.shape, h.dtype)
        through = xp.empty(out.shape, out.dtype)
        name, each = f"rnn_{activation}_step_gradient", (g, out, through)
        times, weight, product = _times(xp, w, back)
        loop = _loop(xp, name, (through, weight, product), (back,), each)
        step = None if loop else _for_steps(xp, name, (back,), each)
        steps = range(len(out))[::-1]
        if loop is not None:
            _for_rows(xp, lambda own: loop(own, steps), out, h.size * len(w), True)
            steps = steps[:0]
        elif is_tanh:
            into, factor = through, back
            if step is None:
                xp.multiply(out, out, through)
                xp.subtract(1, through, through)
        else:
            # Gradients are masked by products of their bits: `masked` says why.
            into, factor = through.view(f"i{out.itemsize}"), back.view(f"i{out.itemsize}")
            if step is None:
                into[...] = out != 0
        xp = _library(xp)
        for t in steps:
            if step is not None:
                step(t)
            else:
                back += g[t]
                into[t] *= factor
            times(through[t], weight, product)
        made = {"z": through, "h": back}
        if "w" in wanted:
            made["w"] = _previous(xp.dot, out, h, through)
        return tuple([made[key] for key in wanted])

    return operation(
        f"rnn_{activation}",
        forward,
        "z h w",
        cost=_cost,
        **_derivatives(_plain_cell(activation), kernel, "z h w"),
    )


# -- the cell with a long memory ------------------------------------------------------------------


#: The order of the gates in kernels: the logistic ones are adjacent.
_ORDER = (3, 0, 1, 2)


@silent
def _lstm(
    xp: Library, x: Array, h: Array, c: Array, v: Array, w: Array, b: Array, kept: list[Any]
) -> Any:
    """The states after all steps, and the last cell state.

    For a single step the state may have another size, as a projected state has.
    """
    steps, batch, features = x.shape
    size = c.shape[1]
    # The factors of the weights in a step: the input, a one for the bias, the previous state.
    rows = xp.empty((steps, batch, features + 1 + h.shape[1]), x.dtype)
    before = rows[..., features + 1 :]
    cut = _cut(xp, batch, rows.shape[2], size) if batch >= _FEW else 0
    if cut:
        gates = xp.empty((steps, 4, batch, size), x.dtype)
        weight = _columns(_by_gate(xp, _ORDER, v.T, b[None], w.T), cut)
        products = _columns(gates, cut)
    else:
        z = xp.dot(x.reshape(steps * batch, features), v.T)
        z += b
        gates = _by_gate(xp, _ORDER, z.reshape(steps, batch, 4 * size))
        weight, part = _by_gate(xp, _ORDER, w.T), _room(xp, gates.shape[1:], x.dtype)
    out = xp.empty((steps + 1, batch, size), x.dtype)
    cells, tops = xp.empty((2, steps, batch, size), x.dtype)
    more = xp.zeros(gates.shape[1:], x.dtype) if cut else part
    each = ((c, cells), *gates.swapaxes(0, 1), cells, tops, out[:-1])
    loop = None
    if xp.compiled:
        product = (rows, weight, products) if cut else ((h, out), weight, part)
        ones = xp.ones((batch, 1), x.dtype)
        copied = (
            (x, rows[..., :features]), (ones, rows[..., features : features + 1]),
            ((h, out), before),
        )  # fmt: skip
        loop = _loop(xp, "lstm_step", product, more, each, (), copied)
    step = None if loop else _for_steps(xp, "lstm_step", more, each)
    if loop is None:
        rows[..., :features] = x
        rows[..., features] = 1
        before[0] = h
    half = xp.asarray(0.5, x.dtype)
    library, xp = xp, _library(xp)
    add, multiply, tanh, matmul = xp.add, xp.multiply, xp.tanh, xp.matmul

    def of_rows(own: slice) -> None:
        if loop is not None:
            loop(own, range(steps))
            return
        state, memory, inputs = h[own], c[own], rows[:, own]
        places = products[..., own, :] if cut else part[:, own]
        scratch = _room(library, memory.shape, x.dtype)
        each = zip(gates[:, :, own], cells[:, own], tops[:, own], out[:-1, own], strict=True)
        for t, (gate, cell, top, new) in _in_turns([*enumerate(each)]):
            if t:
                inputs[t, :, features + 1 :] = state
            if cut:
                matmul(inputs[t], weight, out=places[t])
            else:
                matmul(state, weight, out=places)
            state = new
            if step is not None:
                step(t)
                continue
            if not cut:
                add(gate, places, gate)
            tanh(gate, gate)
            logistic = gate[:3]
            multiply(logistic, half, logistic)
            add(logistic, half, logistic)
            o, i, f, j = gate
            multiply(f, memory, cell)
            multiply(i, j, scratch)
            add(cell, scratch, cell)
            tanh(cell, top)
            memory = cell
            multiply(o, top, new)

    halves = bool(loop or (pieces.threads and not step))
    _for_rows(library, of_rows, rows, gates[0].size * rows.shape[2], halves)
    out[steps] = cells[-1]
    if not kept:
        kept += (rows, gates, cells, tops)
    return out


@silent
def _lstm_kernel(
    xp: Library, g: Array, wanted: tuple[str, ...], x: Array, h: Array, c: Array, v: Array,
    w: Array, b: Array, out: Array, kept: list[Any],
) -> Any:  # fmt: skip
    rows, gates, cells, tops = kept
    steps, _, batch, size = gates.shape
    memory = g[steps].copy()
    # The gradient of each step's gates takes their place: they are not read after it.
    inner = gates if kept.__class__ is Once else xp.empty_like(gates)
    inner = inner.reshape(steps, batch, 4 * size)
    by_gate = _columns(inner, 4)
    share = _room(xp, (batch, w.shape[1]), gates.dtype)
    times, weight, product = _times(xp, w, share)
    # Finish a step while it is in the cache: passes over whole sequences would wait for memory.
    part, less = _room(xp, (2, *gates.shape[1:]), gates.dtype)
    by_o, by_i, by_f, by_j = part
    back, scratch = _room(xp, (2, batch, size), gates.dtype)
    share[...] = 0
    # A projected state has another size, and a single step.
    shared = share if share.shape == back.shape else xp.zeros(back.shape, back.dtype)
    each = (g[:-1], *gates.swapaxes(0, 1), tops, (c, cells))
    name, end = "lstm_step_gradient", (memory, *part)
    copied = zip(part, by_gate.swapaxes(0, 1), strict=True)
    loop = _loop(xp, name, (inner, weight, product), (shared,), each, end, copied)
    step = None if loop else _for_steps(xp, name, (shared,), each, end)
    pool, xp = xp, _library(xp)
    add, multiply, subtract = xp.add, xp.multiply, xp.subtract

    def go_back(those: slice) -> None:
        if loop is not None:
            loop(slice(0, batch), range(steps)[those][::-1])
            return
        for t in _in_turns(range(steps)[those][::-1]):
            row = by_gate[t]
            if step is not None:
                step(t)
                row[...] = part
                times(inner[t], weight, product)
                continue
            gate = gates[t]
            o, i, f, j = gate
            add(g[t], shared, back)
            # The gradient by the cell state: back * o * (1 - top * top).
            multiply(back, out[t], by_o)
            multiply(by_o, tops[t], scratch)
            subtract(memory, scratch, memory)
            multiply(back, o, scratch)
            add(memory, scratch, memory)
            multiply(memory, i, by_j)
            multiply(by_j, j, by_i)
            multiply(memory, f, memory)
            multiply(memory, cells[t - 1] if t else c, by_f)
            # Multiply each gate's gradient by the derivative of its activation: x * (1 - y) for
            # the logistic function, x * (1 - j * j) for tanh.
            multiply(part[:3], gate[:3], less[:3])
            multiply(by_i, j, less[3])
            subtract(part, less, part)
            row[:3] = part[1:]
            row[3] = by_o
            times(inner[t], weight, product)

    parts = _parts(pool, steps, batch, inner[0].size * rows.shape[2])
    by_x = pool.empty(x.shape, x.dtype) if "x" in wanted else None
    sums: list[Any] = [None] * len(parts)

    def multiply_steps(place: int) -> None:
        own = inner[parts[place]]
        own = own.reshape(len(own) * batch, 4 * size)
        if by_x is not None:
            xp.dot(own, v, by_x[parts[place]].reshape(len(own), x.shape[2]))
        if not {"x", "h", "c"} >= set(wanted):
            sums[place] = pool.dot(own.T, rows[parts[place]].reshape(len(own), rows.shape[2]))

    pipelined(lambda place: go_back(parts[place]), multiply_steps, range(len(parts)))
    made = {"x": by_x, "h": share, "c": memory}
    weights = sums[0]
    if weights is not None:
        for other in sums[1:]:
            weights += other
        features = x.shape[2]
        made["v"] = xp.ascontiguousarray(weights[:, :features])
        made["b"] = xp.ascontiguousarray(weights[:, features])
        made["w"] = xp.ascontiguousarray(weights[:, features + 1 :])
    return tuple([made[key] for key in wanted])


def _lstm_step(F: Namespace, q: Value, a: Value, h: Value, c: Value) -> Any:
    i, f, j, o = _gates(a + q, 4)
    i, f, j, o = F.sigmoid(i), F.sigmoid(f), F.tanh(j), F.sigmoid(o)
    memory = f * c + i * j
    top = F.tanh(memory)
    by_gates = (j * i * (1 - i), c * f * (1 - f), i * (1 - j * j), top * o * (1 - o))
    return (o * top, memory), (*by_gates, f, o * (1 - top * top))


def _lstm_pull(F: Namespace, w: Value, slopes: Any, back: Value, memory: Value) -> Any:
    i, f, j, o, keep, show = slopes
    memory = memory + back * show
    part = F.cat([memory * i, memory * f, memory * j, back * o], 1)
    return part, part, part @ w, memory * keep


def _lstm_push(
    F: Namespace, slopes: Any, q: Value, a: Value | None, moved: Value, memory: Value
) -> Any:
    i, f, j, o, keep, show = slopes
    by_i, by_f, by_j, by_o = _gates(_sum(q, a), 4)
    memory = i * by_i + f * by_f + j * by_j + keep * memory
    return o * by_o + show * memory, memory


# -- the gated cell -------------------------------------------------------------------------------


#: The order of its gates: the logistic ones come first.
_GRU_ORDER = (0, 1, 2)


@silent
def _gru(xp: Library, z: Array, h: Array, w: Array, b: Array, kept: list[Any]) -> Any:
    steps, batch, width = z.shape
    size = width // 3
    gates = _by_gate(xp, _GRU_ORDER, z)
    weight, bias = _by_gate(xp, _GRU_ORDER, w.T), _by_gate(xp, _GRU_ORDER, b[None])
    out, news = xp.empty((2, steps, batch, size), z.dtype)
    part, scratch = _room(xp, gates.shape[1:], z.dtype), _room(xp, (batch, size), z.dtype)
    cut = _cut(xp, batch, *weight.shape[1:]) or 1
    others = (*part, *(xp.zeros(part.shape, z.dtype) + bias))
    each = ((h, out), *gates.swapaxes(0, 1), news, out)
    on_host, library, xp = xp.ndarray is np.ndarray, xp, _library(xp)
    gathered = None
    times, product = xp.matmul, part
    if not on_host:
        # CUDA graphs take no product with several matrices: all gates are columns of one.
        times, product = xp.dot, _room(xp, (batch, width), z.dtype)
        weight = weight.swapaxes(0, 1).reshape(h.shape[1], width)
        gathered = product.reshape(batch, 3, size).swapaxes(0, 1)
    elif cut > 1:
        weight, product = _columns(weight, cut), _columns(part, cut)
    loop = _loop(library, "gru_step", ((h, out), weight, product), others, each)
    step = None if loop else _for_steps(library, "gru_step", others, each)
    if loop is not None:
        _for_rows(xp, lambda own: loop(own, range(steps)), out, h.size * width, True)
    for t in range(0 if loop else steps):
        times(h, weight, out=product)
        if gathered is not None:
            part[...] = gathered
        state = out[t]
        if step is not None:
            step(t)
            h = state
            continue
        gate, new = gates[t], news[t]
        part += bias
        two = gate[:2]
        two += part[:2]
        xp.tanh(two, two)
        two *= 0.5
        two += 0.5
        new[...] = part[2]
        reset, update, last = gate
        xp.multiply(reset, new, scratch)
        last += scratch
        xp.tanh(last, last)
        xp.subtract(h, last, state)
        state *= update
        state += last
        h = state
    if not kept:
        kept += (gates, news)
    return out


@silent
def _gru_kernel(
    xp: Library, g: Array, wanted: tuple[str, ...], z: Array, h: Array, w: Array, b: Array,
    out: Array, kept: list[Any],
) -> Any:  # fmt: skip
    gates, news = kept
    steps, _, batch, size = gates.shape
    reset, update, last = (gates[:, place] for place in range(3))
    back = xp.zeros((batch, size), gates.dtype)
    share = _room(xp, back.shape, back.dtype)
    share[...] = 0
    # Gradients by the recurrent parts of the gates, and by the input's part of the last one.
    parts = xp.empty((steps, batch, 3 * size), gates.dtype)
    part, own = _columns(parts, 3), xp.empty(gates.shape[1:], gates.dtype)
    inner = xp.empty(out.shape, out.dtype)
    each = (g, reset, update, last, news, (h, out), inner)
    times, weight, product = _times(xp, w, share)
    name, factors = "gru_step_gradient", (parts, weight, product)
    loop = _loop(xp, name, factors, (share,), each, (back, *part.swapaxes(0, 1)))
    step = None if loop else _for_steps(xp, name, (share,), each, (back, *own))
    if loop is not None:
        _for_rows(xp, lambda rows: loop(rows, range(steps)[::-1]), out, w.size * batch, True)
    elif step is None:
        # The local derivatives of the gates:
        inner = (1 - last * last) * (1 - update)
        part[:, 0] = inner * news * reset * (1 - reset)
        part[0, 1] = h
        part[1:, 1] = out[:-1]
        part[:, 1] -= last
        part[:, 1] *= update * (1 - update)
        part[:, 2] = inner * reset
    xp = _library(xp)
    for t in range(-1 if loop else steps - 1, -1, -1):
        if step is not None:
            step(t)
            part[t] = own
            times(parts[t], weight, product)
            continue
        back += g[t]
        part[t] *= back
        inner[t] *= back
        times(parts[t], weight, product)
        back *= update[t]
        back += share
    if loop or step:
        back += share
    made = {"h": back}
    if "w" in wanted:
        made["w"] = _previous(xp.dot, out, h, parts)
    if "b" in wanted:
        made["b"] = total_of_rows(xp, parts.reshape(-1, 3 * size))
    if "z" in wanted:
        part[:, 2] = inner
        made["z"] = parts
    return tuple([made[key] for key in wanted])


def _gru_step(F: Namespace, q: Value, a: Value, h: Value) -> Any:
    (r, u, n), (more_r, more_u, part) = _gates(a, 3), _gates(q, 3)
    r, u = F.sigmoid(r + more_r), F.sigmoid(u + more_u)
    n = F.tanh(n + r * part)
    kept, rest = u * (h - n), 1 - u
    by_n = rest * (1 - n * n)
    return (n + kept,), (by_n * part * r * (1 - r), kept * rest, by_n, r, u)


def _gru_pull(F: Namespace, w: Value, slopes: Any, back: Value) -> Any:
    r, u, n, reset, keep = slopes
    first, last = (back * r, back * u), back * n
    part = F.cat([*first, last * reset], 1)
    return part, F.cat([*first, last], 1), back * keep + part @ w


def _gru_push(F: Namespace, slopes: Any, q: Value, a: Value | None, moved: Value) -> Any:
    r, u, n, reset, keep = slopes
    by_r, by_u, by_n = _gates(q, 3)
    by_n = reset * by_n
    if a is not None:
        by_r, by_u, by_n = (x + y for x, y in zip((by_r, by_u, by_n), _gates(a, 3), strict=True))
    return (r * by_r + u * by_u + n * by_n + keep * moved,)


def _cost(z: Variable, h: Variable, *rest: object) -> int:
    steps = int(z._metadata.shape[0])
    products = z._metadata.size * h._metadata.shape[-1]
    return 10_000 + 10_000 * steps + 4 * int(z._metadata.cost) + product_cost(products, 0)


def _lstm_cost(x: Variable, h: Variable, c: Variable, *rest: object) -> int:
    steps = int(x._metadata.shape[0])
    gates = 4 * steps * int(c._metadata.size)
    products = gates * (x._metadata.shape[-1] + h._metadata.shape[-1])
    elementwise = 16 * steps * int(c._metadata.cost)
    return int(10_000 + 10_000 * steps + elementwise + product_cost(products, 0))


OPS = (
    _plain("tanh"),
    _plain("relu"),
    operation(
        "lstm",
        _lstm,
        "x h c v w b",
        cost=_lstm_cost,
        **_derivatives(_Cell(_lstm_step, _lstm_pull, _lstm_push), _lstm_kernel, "x h c v w b"),
    ),
    operation(
        "gru",
        _gru,
        "z h w b",
        cost=_cost,
        **_derivatives(_Cell(_gru_step, _gru_pull, _gru_push), _gru_kernel, "z h w b"),
    ),
)
