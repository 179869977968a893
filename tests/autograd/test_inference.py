"""Inference mode: what is made in it never takes part in a graph."""

from functions import function_of
from parity import attempt, both, leaf


def facts(x):
    """How a tensor stands, without its values."""
    return (x.requires_grad, x.is_leaf, x.is_inference(), x._is_view())


@both
def test_the_mode_is_entered_and_left(T, log):
    log(T.is_inference_mode_enabled(), T.is_grad_enabled())
    with T.inference_mode(True):
        log(T.is_inference_mode_enabled(), T.is_grad_enabled())
        with T.inference_mode(False):
            log(T.is_inference_mode_enabled(), T.is_grad_enabled())
        with T.no_grad():
            log(T.is_inference_mode_enabled(), T.is_grad_enabled())
        with T.enable_grad():
            log(T.is_inference_mode_enabled(), T.is_grad_enabled())
        log(T.is_inference_mode_enabled())
    log(T.is_inference_mode_enabled(), T.is_grad_enabled())
    with T.inference_mode():
        log(T.is_inference_mode_enabled())
    with T.autograd.inference_mode(mode=False):
        log(T.is_inference_mode_enabled(), T.is_grad_enabled())
    with T.no_grad(), T.inference_mode(False):
        log(T.is_inference_mode_enabled(), T.is_grad_enabled())
    with T.set_grad_enabled(False), T.autograd.grad_mode.inference_mode():
        log(T.is_grad_enabled(), T.is_inference_mode_enabled())


@both
def test_it_decorates_with_and_without_parentheses(T, log):
    for mode in (T.inference_mode(), T.inference_mode(True), T.inference_mode(False)):

        @mode
        def function(x):
            log(T.is_inference_mode_enabled(), T.is_grad_enabled())
            return x * 2

        log(facts(function(leaf(T, 1.0))))

    @T.inference_mode
    def bare(x):
        return x * 3

    log(facts(bare(leaf(T, 1.0))), bare.__name__)


@both
def test_what_is_made_in_it_is_an_inference_tensor(T, log):
    with T.inference_mode():
        c = T.ones(1, 2, 3)
        log(facts(c))
        d = T.ones(1, 2, 3, requires_grad=True)
        log(facts(d))
        log(facts(T.tensor([1.0])), facts(T.zeros_like(c)), facts(T.rand(2)))
        log(facts(T.tensor([1.0], requires_grad=True)))
        with T.inference_mode(False):
            log(facts(T.ones(2)), facts(T.ones(2, requires_grad=True)))
    log(facts(c), facts(d), facts(T.ones(1)))
    attempt(log, lambda: c._version)
    attempt(log, lambda: T.ones(1)._version)


@both
def test_its_results_are_used_in_functions_that_save_nothing(T, log):
    x = leaf(T, 1.0, 2.0)
    with T.inference_mode():
        c = x * 3
        log(facts(c), c)
        d = c + 1
        log(facts(d))
    y = c + x
    log(facts(y), y)
    yield y.sum().backward()
    log(x.grad)
    attempt(log, lambda: c * x)
    attempt(log, lambda: x * c)
    attempt(log, lambda: c * c)
    log(facts(c * c), facts(c + 1), facts(c.sum()))
    attempt(log, lambda: x / c)
    attempt(log, lambda: c - x)
    attempt(log, lambda: T.matmul(c, x))


@both
def test_functions_of_its_tensors_in_ordinary_mode(T, log):
    with T.inference_mode():
        c = T.ones(2, 3)
        d = T.ones(2, 3, requires_grad=True)
    for s in (c, d):
        func = T.exp(s)
        attempt(log, facts, func)
    log(facts(c.view(-1)), facts(c.clone()), facts(c[0]), facts(c.detach()))
    attempt(log, lambda: facts(c.clone().requires_grad_()))
    attempt(log, lambda: facts(T.ones(2).requires_grad_()))
    attempt(log, c.requires_grad_)
    attempt(log, lambda: facts(c.requires_grad_(False)))

    def assign():
        c.requires_grad = True

    attempt(log, assign)


@both
def test_its_tensors_are_changed_in_place_inside_of_it_alone(T, log):
    with T.inference_mode():
        c = T.ones(3)
        c.add_(2)
        log(facts(c), c)
        view = c[:2]
        view.mul_(2)
        log(facts(view), c)
        c[0] = 9.0
        log(c)
    attempt(log, c.add_, 2)
    attempt(log, view.add_, 2)
    attempt(log, c.zero_)
    attempt(log, lambda: c.copy_(T.ones(3)))

    def write():
        c[0] = 5.0

    attempt(log, write)
    with T.no_grad():
        attempt(log, c.add_, 2)
    with T.inference_mode():
        # There the refused changes have been made.
        log(c.fill_(4))
    x = T.ones(3)
    with T.no_grad():
        log(x.add_(c))
    y = leaf(T, 1.0, 2.0, 3.0).clone()
    attempt(log, lambda: y.add_(c.to(T.float64)))
    attempt(log, lambda: y.mul_(c.to(T.float64)))


@both
def test_ordinary_tensors_changed_in_it(T, log):
    for requires_grad in (False, True):
        s = T.ones(2, 3, requires_grad=requires_grad)
        a = s.clone()
        before = a._version
        with T.inference_mode():
            a.add_(2)
            log(facts(a), a._version - before, a)
            b = a.view(-1)
            b.mul_(2)
            log(b, a._version - before)
            attempt(log, facts, b)
        attempt(log, a.add_, 1)
        log(facts(a))
        if requires_grad:
            attempt(log, b.add_, 1)


@both
def test_saved_tensors_changed_in_it_are_noticed(T, log):
    s = T.ones(3, requires_grad=True)
    a = s.clone()
    y = a * a
    with T.inference_mode():
        a.add_(2)
    try:
        yield y.sum().backward()
        log("passed")
    except RuntimeError as error:
        log(error)
    log(s.grad)


@both
def test_views_of_ordinary_tensors_made_in_it(T, log):
    for requires_grad in (False, True):
        s = T.ones(2, 3, requires_grad=requires_grad)
        a = s.clone()
        with T.inference_mode():
            out = a.view(-1)
            row = a[0]
            log(facts(out), facts(row))
            log(facts(out.view(3, 2)))
        log(facts(out), out.grad_fn)
        attempt(log, out.add_, 2)
        attempt(log, row.mul_, 2)
        attempt(log, out.view(3, 2).add_, 1)
        with T.no_grad():
            attempt(log, out.add_, 2)


@both
def test_views_of_views_made_in_it(T, log):
    for requires_grad in (False, True):
        a = T.ones(1, 2, 3, requires_grad=requires_grad).clone()
        with T.inference_mode():
            out = a.view(-1)
            view = out.view(-1)
            log(facts(view), view.is_leaf)
            view.mul_(2)
            log(view, view.requires_grad, view.is_inference(), a._version == view._version)
            attempt(log, lambda view=view: view.is_leaf)


@both
def test_views_of_its_tensors_are_its_tensors(T, log):
    with T.inference_mode():
        c = T.ones(2, 3)
        v = c.view(-1)
        log(facts(v), facts(v[0]), facts(c.detach()), facts(c.T))
    w = c.view(3, 2)
    log(facts(w), facts(c[0]))
    attempt(log, w.add_, 1)
    attempt(log, lambda: w._version)


@both
def test_inference_and_ordinary_tensors_together(T, log):
    for requires_grad in (False, True):
        s = T.ones(2, 3, requires_grad=requires_grad)
        with T.inference_mode():
            c = T.ones(2, 3)
            log(facts(c + s), facts(s + c), facts(c * s))
        attempt(log, lambda c=c, s=s: facts(c + s))
        attempt(log, lambda c=c, s=s: facts(s * c))
        a = s.clone()
        with T.inference_mode():
            a.mul_(c)
            c.mul_(a)
        log(a, c)
        attempt(log, a.mul_, c)
        attempt(log, c.mul_, a)


@both
def test_clones_are_ordinary_outside(T, log):
    with T.inference_mode():
        x = T.ones(3)
        inside = x.clone()
    outside = x.clone()
    log(facts(inside), facts(outside))
    w = T.ones(3, requires_grad=True)
    y = (outside * w).sum()
    yield y.backward()
    log(w.grad)
    attempt(log, inside.add_, 1)
    log(outside.add_(1))


@both
def test_a_pass_started_in_it(T, log):
    x = leaf(T, 1.0, 2.0)
    y = (x * x).sum()
    with T.inference_mode():
        yield y.backward()
    log(x.grad)
    z = (x * x).sum()
    with T.inference_mode():
        (g,) = yield T.autograd.grad(z, x)
    log(g)


@both
def test_a_function_with_a_backward_of_its_own_in_it(T, log):
    def forward(ctx, x):
        log(T.is_inference_mode_enabled())
        ctx.save_for_backward(x)
        return x * 2

    Twice = function_of(T, forward, lambda ctx, gradient: gradient * 2)
    x = leaf(T, 1.0)
    with T.inference_mode():
        y = Twice.apply(x)
        log(facts(y))
        c = T.ones(2)
    attempt(log, lambda: facts(Twice.apply(c)))
    log(facts(Twice.apply(x)))


@both
def test_modules_and_indices_made_in_it(T, log):
    with T.inference_mode():
        a = T.ones(2)
        model = T.nn.Linear(2, 2)
        log(model.weight.is_inference(), model.weight.requires_grad)
        log(facts(model(a)), T.is_inference(a))
        index = T.tensor([1, 0])
        log(a[index], a[index].is_inference(), T.nn.functional.embedding(index, a.reshape(2, 1)))
    x = leaf(T, 1.0, 2.0)
    attempt(log, lambda: x[index])
    log(x.detach()[index], T.is_inference(T.ones(1)))
    yield x.sum().backward()
