"""Changes in place: versions, history, and what is refused."""

import pytest
from parity import attempt, both, leaf, raised

import asyncgrad as ag

# -- versions ------------------------------------------------------------------------------------


@both
def test_what_shares_a_version_and_what_does_not(T, log):
    x = T.ones(4, dtype=T.float64)
    view, detached, data, clone = x[:2], x.detach(), x.data, x.clone()

    def versions():
        log([t._version for t in (x, view, detached, data, clone)])

    versions()
    for change in (
        lambda: x.add_(1),
        lambda: view.mul_(2),
        lambda: detached.zero_(),
        lambda: data.add_(1),
        lambda: clone.add_(1),
        lambda: x[0].fill_(3),
        lambda: x.__setitem__(0, 5.0),
        lambda: x.copy_(T.ones(4, dtype=T.float64)),
        lambda: x.detach().view(2, 2).add_(1),
    ):
        change()
        versions()
    with T.no_grad():
        x.add_(1)
    versions()
    x += 1
    x *= 2
    x -= 1
    x /= 2
    versions()
    T.autograd.graph.increment_version(x)
    T.autograd.graph.increment_version([x, clone])
    versions()
    with T.autograd._unsafe_preserve_version_counter(x):
        x.add_(1)
    versions()
    log(x)


@both
def test_a_saved_tensor_that_has_changed_is_refused(T, log):
    x = leaf(T, 1.0, 2.0)

    def run(function, change):
        y = x * 1
        z = function(y)
        change(y)
        return z.sum().backward()

    for function in (
        lambda y: y * y,
        lambda y: y.sin(),
        lambda y: y * 2,
        lambda y: y + y,
        lambda y: y.exp(),
        lambda y: T.matmul(y, y),
        lambda y: y**2,
    ):
        for change in (
            lambda y: y.add_(1),
            lambda y: y[:1].add_(1),
            lambda y: y.detach().add_(1),
            lambda y: y.data.add_(1),
            lambda y: None,
        ):
            try:
                yield run(function, change)
            except RuntimeError as error:
                log(error, "modified by an inplace operation" in str(error))
            log(x.grad)
            x.grad = None


@both
def test_a_saved_output_that_has_changed_is_refused(T, log):
    x = leaf(T, 1.0, 2.0)
    for change in (
        lambda y: y.add_(1),
        lambda y: y.mul_(2),
        lambda y: y[:1].zero_(),
        lambda y: y.detach().add_(1),
        lambda y: None,
    ):
        for function in (lambda t: t.exp(), lambda t: t.sqrt(), lambda t: t.tanh(), lambda t: -t):
            y = function(x)
            change(y)
            yield from raised(log, y.sum().backward)
            log(x.grad)
            x.grad = None


@both
def test_a_leaf_that_has_changed_after_it_was_saved_is_refused(T, log):
    x = leaf(T, 1.0, 2.0)
    y = (x * x).sum()
    with T.no_grad():
        x.add_(1)
    yield from raised(log, y.backward)
    log(x.grad)
    y = (x * x).sum()
    x.data.add_(1)
    yield y.backward()
    log(x.grad)


@both
def test_a_base_that_changes_where_a_view_was_saved(T, log):
    x = leaf(T, 1.0, 2.0)
    base = x * 1
    y = base[:1] * base[:1]
    base[1:].add_(1)
    yield from raised(log, y.sum().backward)


@both
def test_states_that_their_nodes_have_saved_are_put_into_rows(T, log):
    """The rows may change later: they have only the states' values."""
    w = leaf(T, 0.5, -1.0)
    state, rows = w * 0, T.empty(4, 2, dtype=w.dtype)
    for number in range(3):
        state = T.tanh(state + w)
        rows[number] = state
    rows[3].copy_(T.exp(w))
    rows[0] += 1
    rows[:, 1:].mul_(T.sigmoid(w)[1:])
    log(rows.grad_fn is not None)
    yield (rows * rows).sum().backward()
    log(w.grad)


@both
def test_elements_of_a_view_whose_base_has_changed_since(T, log):
    """Its history is that of the changed base."""
    for put in (
        lambda v: v.__setitem__(T.tensor([0]), 1.0),
        lambda v: v.index_add_(0, T.tensor([0, 1]), T.ones(2, 2, dtype=v.dtype)),
        lambda v: v.scatter_(0, T.zeros(1, 2, dtype=T.int64), 0.5),
        lambda v: v.__setitem__(T.tensor([[True, False], [False, True]]), 2.0),
    ):
        w = leaf(T, 0.5, -1.0)
        base = w * T.arange(6, dtype=w.dtype).reshape(3, 2)
        view = base[1:]
        base.mul_(3)
        put(view)
        log(view.requires_grad, view.grad_fn is None, view, base)
        yield ((view * view).sum() + (base * base).sum()).backward()
        log(w.grad)


@both
def test_a_state_that_changes_after_it_was_put_into_a_row(T, log):
    w = leaf(T, 0.5, -1.0)
    state, rows = T.tanh(w), T.zeros(2, 2, dtype=w.dtype)
    rows[1] = state
    state.add_(1)
    yield from raised(log, rows.sum().backward)


@both
def test_the_error_says_what_has_changed_and_how_often(T, log):
    x = T.ones(2, requires_grad=True)
    y = x + 1
    z = y * y
    y.add_(1)
    y.add_(1)
    try:
        yield z.sum().backward()
    except RuntimeError as error:
        text = str(error)
        log(["version 2" in text, "expected version 0" in text, "2" in text])


# -- history -------------------------------------------------------------------------------------


@both
def test_changes_in_place_are_differentiated(T, log):
    x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    for change in (
        lambda y: y.add_(w),
        lambda y: y.mul_(w),
        lambda y: y.sub_(w).mul_(2),
        lambda y: y.div_(w),
        lambda y: y.exp_(),
        lambda y: y.sin_().mul_(w),
        lambda y: y.pow_(2),
        lambda y: y.clamp_(1.5),
        lambda y: y.zero_(),
        lambda y: y.fill_(3),
        lambda y: y.copy_(w),
        lambda y: y.neg_(),
        lambda y: y.tanh_(),
    ):
        y = x * 2
        before = y
        result = change(y)
        log(result is before, y.requires_grad)
        log((yield T.autograd.grad((y * y).sum(), [x, w], allow_unused=True)))


@both
def test_operators_that_assign(T, log):
    x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    y = x * 1
    before = y
    y += w
    y *= w
    y -= 1
    y /= w
    y **= 2
    log(y is before, y._version, y)
    log((yield T.autograd.grad(y.sum(), [x, w])))


@both
def test_a_plain_buffer_becomes_part_of_the_graph(T, log):
    x = leaf(T, 1.0, 2.0)
    buffer = T.zeros(2, dtype=T.float64)
    log(buffer.requires_grad, buffer.is_leaf)
    buffer.copy_(x * 3)
    log(buffer.requires_grad, buffer.is_leaf)
    yield buffer.sum().backward()
    log(x.grad)
    buffer = T.zeros(3, dtype=T.float64)
    buffer[1:] = x
    log(buffer, buffer.requires_grad)
    yield (buffer * buffer).sum().backward()
    log(x.grad)
    buffer = T.ones(2, dtype=T.float64)
    buffer.mul_(x)
    yield (buffer * buffer).sum().backward()
    log(x.grad)


@both
def test_what_is_overwritten_has_no_gradient(T, log):
    x, w = leaf(T, 1.0, 2.0, 3.0), leaf(T, 5.0)
    y = x * 2
    y[0] = 7.0
    y[1:2] = w
    log(y)
    yield (y * y).sum().backward()
    log(x.grad, w.grad)
    log([node.grad_fn.name() for node in (T.fill(x, 2.0), T.fill(x, T.tensor(2.0)))])
    log([node.grad_fn.name() for node in ((x * 2).zero_(), (x * 2).fill_(1.0))])
    log((x * 2).fill_(T.tensor(2.0)).grad_fn.name())
    y = x * 2
    y[T.tensor([True, False, True])] = w
    y[T.tensor([1])] = 2.0
    yield (y * y).sum().backward()
    log(x.grad, w.grad)


@both
def test_a_tensor_that_is_its_own_operand(T, log):
    """Of the changed operand alone the values that a node saves are copied."""

    def run(change):
        x = leaf(T, 0.25, 0.5)
        y = x * 1
        log(change(y))
        return y.sum().backward()

    for change in (
        lambda y: y.mul_(y),
        lambda y: y.div_(y),
        lambda y: y.pow_(y),
        lambda y: y.atan2_(y),
        lambda y: y.addcmul_(y, y),
        lambda y: y.mul_(y[:]),
        lambda y: y.mul_(other=y),
        lambda y: y.__imul__(y),
    ):
        try:
            yield run(change)
        except RuntimeError as error:
            log(error, "modified by an inplace operation" in str(error))
    for change in (
        lambda y: y.add_(y),
        lambda y: y.sub_(y),
        lambda y: y.mul_(y.clone()),
        lambda y: y.copy_(y),
    ):
        yield run(change)


@both
def test_a_result_may_be_changed_where_nothing_was_saved_of_it(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x + 1
    z = y + 2
    y.mul_(3)
    yield (y + z).sum().backward()
    log(x.grad)


@both
def test_the_input_is_still_checked_when_a_changed_output_was_computed_again(T, log):
    x = leaf(T, 1.0, 3.0, 2.0, 4.0)
    y = x * 1
    z = T.nn.functional.max_pool2d(y.reshape(1, 2, 2), 2)
    z.mul_(2)
    yield z.sum().backward(retain_graph=True)
    log(x.grad)
    y.add_(1)
    yield from raised(log, z.sum().backward)
    log(x.grad)


@both
def test_second_derivatives_through_changes_in_place(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * x
    y.mul_(x)
    y[:1].sin_()
    (g,) = yield T.autograd.grad(y.sum(), x, create_graph=True)
    log(g)
    log((yield T.autograd.grad(g.sum(), x)))


@both
def test_a_leaf_of_no_gradient_may_change_and_then_require_one(T, log):
    x = T.ones(2, dtype=T.float64)
    x.add_(1)
    x.requires_grad_()
    yield (x * x).sum().backward()
    log(x.grad, x._version)


# -- what is refused -----------------------------------------------------------------------------


@both
def test_a_leaf_that_requires_grad_does_not_change_in_place(T, log):
    x = leaf(T, 1.0, 2.0)

    def operators():
        y = x
        y += 1

    for change in (
        lambda: x.add_(1),
        lambda: x.mul_(x),
        lambda: x.zero_(),
        lambda: x.copy_(T.ones(2, dtype=T.float64)),
        lambda: x.exp_(),
        lambda: x.__setitem__(0, 1.0),
        lambda: x[0].add_(1),
        lambda: x[:1].mul_(2),
        lambda: x.view(2, 1).zero_(),
        lambda: x.view(2, 1)[0].zero_(),
        operators,
    ):
        attempt(log, change)
        log(x, x._version, x.is_leaf)
    with T.no_grad():
        x.add_(1)
        x[0] = 5.0
        x.view(2, 1).mul_(2)
    log(x, x._version, x.requires_grad, x.is_leaf)
    yield (x * 2).sum().backward()
    log(x.grad)


@both
def test_shapes_and_dtypes_of_changes_in_place(T, log):
    x = T.ones(2, dtype=T.float64)
    attempt(log, x.add_, T.ones((3, 2), dtype=T.float64))
    attempt(log, x.add_, T.ones(3, dtype=T.float64))
    attempt(log, x.add_, 1j)
    attempt(log, T.ones(2, dtype=T.int64).add_, 1.5)
    attempt(log, T.ones(2, dtype=T.int64).div_, 2)
    attempt(log, x.copy_, T.ones(3, dtype=T.float64))
    attempt(log, T.ones(1).expand(3).add_, 1)
    log(x, x._version)
    x.add_(T.ones((), dtype=T.float32))
    log(x)


# -- detach_, data, requires_grad_ ---------------------------------------------------------------


@both
def test_detach_in_place(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    log(y.detach_() is y, y.requires_grad, y.is_leaf, y.grad_fn)
    y.requires_grad_()
    yield (y * y).sum().backward()
    log(y.grad, x.grad)
    attempt(log, (x * 2)[:1].detach_)
    attempt(log, x[:1].detach_)
    attempt(log, T.ones(2)[:1].detach_)
    z = leaf(T, 1.0)
    log(z.detach_().requires_grad)
    base = x * 2
    view = base[:1]
    base.detach_()
    log(base.requires_grad, view.requires_grad)


@both
def test_detached_tensors_share_memory(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x.detach()
    log(y.requires_grad, y.is_leaf, y.grad_fn)
    y[0] = 7.0
    log(x, x._version)
    z = (x * 2).detach()
    z.requires_grad_()
    yield (z * z).sum().backward()
    log(x.grad, z.grad)


@both
def test_data(T, log):
    x = leaf(T, 1.0, 2.0)
    log(x.data.requires_grad, x.data._version)
    x.data = T.tensor([5.0, 6.0], dtype=T.float64)
    log(x, x.requires_grad, x.is_leaf)
    yield (x * x).sum().backward()
    log(x.grad)

    def assign(value):
        x.data = value

    attempt(log, assign, 1.0)
    attempt(log, assign, None)


@both
def test_who_may_require_grad(T, log):
    x = T.ones(2)
    log(x.requires_grad_() is x, x.requires_grad, x.is_leaf)
    log(x.requires_grad_(False).requires_grad)
    x.requires_grad = True
    y = x * 2
    attempt(log, y.requires_grad_, False)
    attempt(log, lambda: setattr(y, "requires_grad", False))
    log(y.requires_grad_() is y)
    attempt(log, T.ones(2, dtype=T.int64).requires_grad_)
    attempt(log, T.ones(2, dtype=T.bool).requires_grad_)
    log(T.ones(2, dtype=T.int64).requires_grad_(False).requires_grad)
    attempt(log, T.tensor, [1, 2], requires_grad=True)
    log(T.ones(2, dtype=T.complex64).requires_grad_().requires_grad)
    # A leaf that no longer requires grad keeps the graphs it is part of.
    z = (x * 3).sum()
    x.requires_grad_(False)
    log((x * 3).requires_grad)
    yield z.backward()
    log(x.grad)
    # So does one that is cut off.
    for function in (T.exp, T.sum, lambda x: x * x + x):
        x = leaf(T, 1.0, 2.0)
        z = function(x).sum()
        x.detach_()
        yield z.backward()
        log(x.grad, x.requires_grad)


@both
def test_numpy_needs_a_tensor_without_graph(T, log):
    x = leaf(T, 1.0, 2.0)
    attempt(log, x.numpy)
    attempt(log, (x * 2).numpy)
    log(x.detach().numpy().tolist())
    with T.no_grad():
        log((x * 2).numpy().tolist())
        attempt(log, x.numpy)


# -- ours ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(ag.ones(3)),
        lambda x: x.copy_(ag.ones(3)),
        lambda x: x.add_(1j),
        lambda x: x.__setitem__(5, 1.0),
        lambda x: x.__setitem__(slice(0, 1), ag.ones(2)),
        lambda x: x.fill_(ag.ones(2)),
    ],
)
def test_a_refused_change_leaves_everything_as_it_was(change):
    leaf = ag.ones(2, requires_grad=True)
    x = leaf * 3
    before = (x.tolist(), x._version, x.grad_fn)
    with pytest.raises((RuntimeError, IndexError)):
        change(x)
    assert (x.tolist(), x._version, x.grad_fn) == before
