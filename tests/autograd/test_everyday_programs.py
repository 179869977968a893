"""Programs that people write, as they run in PyTorch: several features at once."""

from functions import function_of
from parity import attempt, both, leaf, raised

# -- derivatives of derivatives ------------------------------------------------------------------


@both
def test_a_hessian_times_a_vector(T, log):
    x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    z = x**2 + y * x + y**2
    yield z.backward(T.ones(2, dtype=T.float64), create_graph=True)
    log(x.grad, y.grad)
    x_grad, y_grad = x.grad.detach().clone(), y.grad.detach().clone()
    gradient = 2 * x.grad + y.grad
    yield gradient.backward(T.ones(2, dtype=T.float64))
    log(x.grad - x_grad, y.grad - y_grad)
    x.grad = y.grad = None


@both
def test_a_gradient_penalty(T, log):
    w, x = leaf(T, 0.5, -0.5), leaf(T, 1.0, 2.0)
    score = (w * x).tanh().sum()
    (g,) = yield T.autograd.grad(score, x, create_graph=True)
    penalty = ((g**2).sum() - 1) ** 2
    yield (score + 10 * penalty).backward()
    log(w.grad, x.grad)


@both
def test_a_step_of_meta_learning(T, log):
    """The gradient goes through an update of the weights."""
    w, rate = leaf(T, 1.0, 2.0), leaf(T, 0.1)
    data = T.tensor([1.0, -1.0], dtype=T.float64)
    fast = w
    for _ in range(3):
        loss = ((fast * data).sum() - 1) ** 2
        (g,) = yield T.autograd.grad(loss, fast, create_graph=True)
        fast = fast - rate * g
    yield ((fast * data).sum() ** 2).backward()
    log(w.grad, rate.grad, fast)


@both
def test_a_hessian_row_by_row(T, log):
    x = leaf(T, 1.0, 2.0, 3.0)
    y = (x[0] * x[1] * x[2]) + (x**3).sum()
    (g,) = yield T.autograd.grad(y, x, create_graph=True)
    for i in range(3):
        log((yield T.autograd.grad(g[i], x, retain_graph=True)))


# -- training ------------------------------------------------------------------------------------


@both
def test_gradients_accumulate_over_parts_of_a_batch(T, log):
    w = leaf(T, 1.0, 2.0)
    batch = T.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=T.float64)
    for row in batch:
        yield ((w * row).sum() ** 2 / 3).backward()
    log(w.grad)
    w.grad = None
    yield (((batch * w).sum(1)) ** 2).mean().backward()
    log(w.grad)


@both
def test_a_part_of_the_model_is_frozen(T, log):
    a, b, x = leaf(T, 2.0), leaf(T, 3.0), T.ones(1, dtype=T.float64)
    a.requires_grad_(False)
    y = (x * a * b).sum()
    yield y.backward()
    log(a.grad, b.grad)
    a.requires_grad_()
    with T.no_grad():
        h = x * a
    yield (h * b).sum().backward()
    log(a.grad, b.grad)
    yield ((x * a).detach() * b).sum().backward()
    log(a.grad, b.grad)


@both
def test_weights_updated_by_hand(T, log):
    w = leaf(T, 1.0, 2.0)
    for _ in range(4):
        loss = ((w - 3) ** 2).sum()
        yield loss.backward()
        with T.no_grad():
            w -= 0.1 * w.grad
            w.grad.zero_()
    log(w, w.grad, w.requires_grad, w.is_leaf)


@both
def test_weights_updated_through_data(T, log):
    w = leaf(T, 1.0, 2.0)
    for _ in range(4):
        yield ((w - 3) ** 2).sum().backward()
        w.data.sub_(0.1 * w.grad.data)
        w.grad = None
    log(w, w._version)


@both
def test_a_weight_that_is_shared(T, log):
    w = leaf(T, 2.0)
    y = w * w.exp() + w.detach() * w
    yield y.sum().backward()
    log(w.grad)


@both
def test_two_losses_of_one_model(T, log):
    w, a, b = leaf(T, 2.0), leaf(T, 3.0), leaf(T, 4.0)
    h = (w * 2).exp()
    first, second = (h * a).sum(), (h * b).sum()
    yield first.backward(retain_graph=True)
    log(w.grad, a.grad, b.grad)
    yield second.backward()
    log(w.grad, a.grad, b.grad)


@both
def test_gradients_clipped_and_reversed_by_hooks(T, log):
    x = leaf(T, 1.0, -2.0)
    y = x * 10
    y.register_hook(lambda g: g.clamp(-1, 1))
    x.register_hook(lambda g: -g)
    yield (y * y).sum().backward()
    log(x.grad)


@both
def test_a_step_taken_by_hooks_while_the_pass_goes_on(T, log):
    a, b = leaf(T, 1.0), leaf(T, 2.0)
    for p in (a, b):

        def step(p):
            with T.no_grad():
                p.sub_(p.grad * 0.1)
            p.grad = None

        p.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        yield ((a + b) ** 2).sum().backward()
    log(a, b, a.grad, b.grad)


@both
def test_a_truncated_recurrence(T, log):
    w = leaf(T, 0.5)
    h = T.zeros(1, dtype=T.float64)
    for step in range(6):
        h = (h * w + 1).tanh()
        if step % 2:
            yield h.sum().backward()
            h = h.detach()
    log(w.grad, h)


@both
def test_a_state_changed_in_place_over_time(T, log):
    w = leaf(T, 0.5)
    state = T.zeros(3, dtype=T.float64)
    for step in range(3):
        state[step] = (state.sum() + w[0]) * 2 if step else w[0] * 3
    log(state)
    yield (state * T.tensor([1.0, 2.0, 3.0], dtype=T.float64)).sum().backward()
    log(w.grad)


# -- indices -------------------------------------------------------------------------------------


@both
def test_reading_the_same_place_twice_adds(T, log):
    x = leaf(T, 1.0, 2.0, 3.0)
    yield x[T.tensor([0, 0, 2])].sum().backward()
    log(x.grad)
    yield (x[[1, 1]] * T.tensor([1.0, 10.0], dtype=T.float64)).sum().backward()
    log(x.grad)
    yield x[x > 1.5].sum().backward()
    log(x.grad)


@both
def test_writing_cuts(T, log):
    x, v = leaf(T, 1.0, 2.0, 3.0), leaf(T, 5.0, 6.0)
    y = x * 2
    y[T.tensor([0, 2])] = v
    yield (y * y).sum().backward()
    log(x.grad, v.grad)
    y = x * 2
    y[y > 3] = 0.0
    yield y.sum().backward()
    log(x.grad)
    y = x * 2
    y[1:] = y[:2].clone()
    yield (y * T.tensor([1.0, 10.0, 100.0], dtype=T.float64)).sum().backward()
    log(x.grad)


@both
def test_writing_broadcasts(T, log):
    x, v = T.zeros((2, 3), dtype=T.float64), leaf(T, 5.0)
    x[:, 1] = v
    x[0] = v * 2
    log(x)
    yield x.sum().backward()
    log(v.grad)


# -- shapes --------------------------------------------------------------------------------------


@both
def test_broadcasting_is_undone(T, log):
    a = T.ones((3, 1), dtype=T.float64, requires_grad=True)
    b = T.ones((1, 4), dtype=T.float64, requires_grad=True)
    c = T.ones((), dtype=T.float64, requires_grad=True)
    d = T.ones((2, 3, 4), dtype=T.float64, requires_grad=True)
    yield (a * b + c * d - b / d).sum().backward()
    log(a.grad, b.grad, c.grad, d.grad)


@both
def test_tensors_without_elements(T, log):
    x = T.zeros((0, 3), dtype=T.float64, requires_grad=True)
    w = T.ones(3, dtype=T.float64, requires_grad=True)
    y = (x * w).exp()
    log(y)
    yield y.sum().backward()
    log(x.grad, w.grad)
    yield (T.cat([x, x]).sum() + w.sum()).backward()
    log(x.grad, w.grad)
    yield T.matmul(x, T.ones((3, 2), dtype=T.float64)).sum().backward()
    log(x.grad)


@both
def test_numbers_of_no_dimension(T, log):
    s = T.tensor(3.0, requires_grad=True)
    v = T.ones(2, dtype=T.float64, requires_grad=True)
    y = s * v
    log(y)
    yield y.sum().backward()
    log(s.grad, v.grad)
    yield (s**2 + s.exp()).backward()
    log(s.grad)


@both
def test_dtypes_change_along_the_way(T, log):
    x = T.ones(3, dtype=T.float32, requires_grad=True)
    y = x.double() * 2
    z = y.float() + x
    yield (z.double() * y).sum().backward()
    log(x.grad)
    half = T.ones(2, dtype=T.float16, requires_grad=True)
    yield (half.float() * 3).sum().backward()
    log(half.grad)
    log((x.long() * 2).requires_grad, (x > 0).requires_grad, x.int().is_leaf)


@both
def test_integers_stay_out_of_graphs(T, log):
    x = leaf(T, 1.0, 2.0, 3.0)
    i = x.argmax()
    log(i.requires_grad, i.grad_fn)
    values, indices = x.sort()
    log(values.requires_grad, indices.requires_grad)
    yield (values * T.tensor([1.0, 2.0, 3.0], dtype=T.float64)).sum().backward()
    log(x.grad)
    value, index = x.max(0)
    yield (value * index).backward()
    log(x.grad)


# -- what depends on what ------------------------------------------------------------------------


@both
def test_a_result_that_does_not_depend_on_its_inputs(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 0 + 3
    yield y.sum().backward()
    log(x.grad)
    log((yield T.autograd.grad(T.ones(2, requires_grad=True).sum(), x, allow_unused=True)))
    zeros = T.zeros(2, dtype=T.float64, requires_grad=True)
    yield (zeros * x).sum().backward()
    log(x.grad, zeros.grad)


@both
def test_tensors_in_and_out_of_no_grad(T, log):
    x = leaf(T, 1.0, 2.0)
    with T.no_grad():
        y = x * 2
        log(y.requires_grad, y.is_leaf)
        z = y.requires_grad_()
        log(z.requires_grad)
        with T.enable_grad():
            w = x * 3
        log(w.requires_grad)
    yield (w + y).sum().backward()
    log(x.grad, y.grad)
    log((y * 2).requires_grad)


@both
def test_isolated_parts_of_a_graph(T, log):
    x, y = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    a = x + y
    b = T.argmax(a, 0) * 1.0
    log(b.requires_grad)
    c = (b + a).sum()
    yield c.backward()
    log(x.grad, y.grad)


@both
def test_deleting_parts_of_a_graph(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 2
    z = y * 3
    del y
    yield z.sum().backward()
    log(x.grad)


@both
def test_a_graph_that_splits_and_meets_again_and_again(T, log):
    x = leaf(T, 1.0, 0.5)
    y = x
    for _ in range(10):
        y = y * 0.5 + y * y * 0.1 + y.sin()
    yield y.sum().backward()
    log(x.grad)


# -- failures ------------------------------------------------------------------------------------


@both
def test_after_a_failure_everything_goes_on(T, log):
    x = leaf(T, 1.0, 2.0)

    def backward(ctx, gradient):
        raise KeyError("here")

    Fail = function_of(T, backward=backward)
    for _ in range(3):
        try:
            yield Fail.apply(x).sum().backward()
        except KeyError as error:
            log(error, str(error))
        log(T.is_grad_enabled(), x.grad)
    yield (x * 2).sum().backward()
    log(x.grad)


@both
def test_what_has_run_before_a_failure_is_freed(T, log):
    x = leaf(T, 1.0, 2.0)
    a = x.exp()
    b = a.sin()
    calls = []

    def fail_once(gradient):
        calls.append(1)
        if len(calls) == 1:
            raise ValueError

    a.register_hook(fail_once)
    yield from raised(log, b.sum().backward)
    yield from raised(log, b.sum().backward)
    yield a.sum().backward()
    log(x.grad, len(calls))


@both
def test_errors_of_the_wrong_call_come_from_the_call(T, log):
    x = leaf(T, 1.0, 2.0)
    attempt(log, x.backward)
    attempt(log, (x * 2).sum().detach().backward)
    attempt(log, T.autograd.grad, (x * 2).sum(), x, materialize_grads=True, allow_unused=False)
    yield (x * 2).sum().backward()
    log(x.grad)
