"""Views: what they share with their base, and what a change of either does to the other."""

import pytest
from functions import function_of
from parity import attempt, both, leaf, raised

import asyncgrad as ag


def grid(T):
    return (T.arange(12, dtype=T.float64) + 1).reshape(3, 4).clone().requires_grad_()


#: Functions whose result is a view of a tensor of three rows and four columns.
VIEWS = [
    lambda T, x: x[1],
    lambda T, x: x[1:],
    lambda T, x: x[:, ::2],
    lambda T, x: x[..., 1],
    lambda T, x: x[None],
    lambda T, x: x[0, 1],
    lambda T, x: x.t(),
    lambda T, x: x.transpose(0, 1),
    lambda T, x: x.permute(1, 0),
    lambda T, x: x.view(4, 3),
    lambda T, x: x.view(-1),
    lambda T, x: x.reshape(2, 6),
    lambda T, x: x.unsqueeze(0),
    lambda T, x: x.unsqueeze(0).squeeze(),
    lambda T, x: x.flatten(),
    lambda T, x: x.narrow(1, 1, 2),
    lambda T, x: x.select(0, 2),
    lambda T, x: x[1:].t()[1:3],
    lambda T, x: x.view(2, 2, 3)[:, 1].t(),
    lambda T, x: x.t().t(),
    lambda T, x: x.movedim(0, 1),
    lambda T, x: x.unflatten(1, (2, 2)),
    lambda T, x: x.diagonal(),
]


@both
def test_a_view_knows_its_base(T, log):
    x = grid(T)
    y = x * 1
    for view in VIEWS:
        v = view(T, y)
        log(v, v._is_view(), v._base is y, v._version == y._version, v.requires_grad, v.is_leaf)
    log(y._is_view(), y._base, (y * 2)._is_view(), y.clone()._is_view(), y.detach()._is_view())
    w = y[1:]
    log(w[0]._base is y, w.detach().requires_grad, y.unfold(0, 2, 1).grad_fn)


#: Functions that PyTorch does not compose, here composed of others, of which the last is a view.
NO_VIEWS = [
    lambda T, x: x @ x.t() @ T.ones(3, dtype=T.float64),
    lambda T, x: T.ones(2, 3, 4, dtype=T.float64) @ x.t(),
    lambda T, x: T.ones(3, dtype=T.float64) @ T.ones(2, 3, 4, dtype=T.float64),
    lambda T, x: T.ones(2, 3, 4, dtype=T.float64) @ T.ones(4, dtype=T.float64),
    lambda T, x: x[0, 0].softmax(0),
    lambda T, x: x[0, 0].gather(0, T.tensor([0, 0])),
    lambda T, x: x[0, 0].cummax(0)[0],
    lambda T, x: x.roll(1),
    lambda T, x: x.quantile(0.5),
    lambda T, x: T.combinations(x[0]),
    lambda T, x: T.linalg.norm(x, float("inf")),
    lambda T, x: T.linalg.matrix_norm(x, 1),
    lambda T, x: T.linalg.cholesky(x @ x.t() + 9 * T.eye(3, dtype=T.float64), upper=True),
    lambda T, x: T.linalg.solve(x[:, :3] + 9 * T.eye(3, dtype=T.float64), x[:, 0]),
    lambda T, x: T.linalg.solve(x[:, :3] + 9 * T.eye(3, dtype=T.float64), x.t(), left=False),
    lambda T, x: T.linalg.lstsq(x, x)[1],
    lambda T, x: T.nn.functional.avg_pool3d(x[None, None], 1),
    lambda T, x: T.nn.functional.grid_sample(
        x[None, None], T.zeros(1, 1, 1, 2, dtype=T.float64), align_corners=False
    ),
    lambda T, x: T.nn.functional.pixel_shuffle(x[None], 1),
    lambda T, x: T.nn.functional.pixel_unshuffle(x[None], 1),
    lambda T, x: T.nn.functional.unfold(x[None, None], 1),
]


@both
def test_results_that_are_no_views_can_be_detached_and_changed_in_place(T, log):
    w = T.tensor(2.0, dtype=T.float64, requires_grad=True)
    for function in NO_VIEWS:
        x = grid(T)
        y = function(T, x)
        log(y._is_view(), y.detach_())
        with T.no_grad():
            y = function(T, x)
        y.mul_(w)
        log(y, x)


@both
def test_the_last_node_of_a_product_is_pytorchs(T, log):
    shapes = [((2,), (2, 3)), ((2,), (4, 2, 3)), ((4, 3, 2), (2,)), ((4, 3, 2), (2, 3))]
    for a, b in shapes:
        for wanted in (0, 1):
            pair = [T.ones(*shape) for shape in (a, b)]
            pair[wanted].requires_grad_()
            log((pair[0] @ pair[1]).grad_fn)


@both
def test_a_saved_result_that_is_no_view_shows_that_it_changed(T, log):
    for function in (T.softmax, T.log_softmax):
        y = function(T.ones((), dtype=T.float64, requires_grad=True), 0)
        y.mul_(2)
        yield from raised(log, y.backward)


@both
def test_an_unsafe_part_has_a_version_of_its_own(T, log):
    x = grid(T)
    y = x * 1
    z = (y * y).sum()
    for part in (y.unsafe_split(2)[0], y.unsafe_chunk(2)[0]):
        log(part.mul_(2)._version, y._version)
    yield z.backward()
    log(x.grad)


@both
def test_a_view_that_changes_rewrites_its_base(T, log):
    w = T.tensor(3.0, dtype=T.float64, requires_grad=True)
    for view in VIEWS:
        x = grid(T)
        y = x * 1
        v = view(T, y)
        v.mul_(w)
        log(y, y._version, v._version, y.grad_fn, v.requires_grad)
        log((yield T.autograd.grad((y * y).sum(), [x, w], retain_graph=True)))
        log((yield T.autograd.grad((v * v).sum(), [x, w])))


@both
def test_a_base_that_changes_is_seen_by_its_views(T, log):
    w = leaf(T, 3.0)
    for view in VIEWS:
        x = grid(T)
        y = x * 1
        v = view(T, y)
        before = v.grad_fn
        y.mul_(w)
        log(v, v._version, v.grad_fn is before)
        log((yield T.autograd.grad((v * v).sum(), [x, w])))


@both
def test_a_view_that_changes_is_seen_by_its_siblings(T, log):
    w = leaf(T, 3.0)
    x = grid(T)
    y = x * 1
    a, b, c = y[0], y[:, 1], y[2]
    kept = c.grad_fn
    a.mul_(w)
    log(b, c.grad_fn is kept)
    yield (a.sum() + (b * b).sum() + c.sum()).backward()
    log(x.grad, w.grad)


@both
def test_a_plain_base_becomes_part_of_the_graph_through_its_view(T, log):
    w = leaf(T, 3.0, 4.0)
    base = T.zeros((3, 2), dtype=T.float64)
    view, other = base[1], base[2]
    log(view.requires_grad, other.requires_grad)
    view.copy_(w)
    log(base.requires_grad, view.requires_grad, other.requires_grad, base.grad_fn)
    log(base.is_leaf, view.is_leaf, other.is_leaf)
    yield (base * base).sum().backward(retain_graph=True)
    log(w.grad)
    yield (view * 2).sum().backward(retain_graph=True)
    log(w.grad)
    yield (other * 2).sum().backward()
    log(w.grad)


@both
def test_a_plain_base_that_changes_takes_its_views_along(T, log):
    w = leaf(T, 3.0, 4.0)
    base = T.zeros(2, dtype=T.float64)
    view = base[1:]
    base.add_(w)
    log(view.requires_grad, view.is_leaf, view)
    yield (view * 2).sum().backward()
    log(w.grad)


@both
def test_chains_of_views_and_changes(T, log):
    x, w = grid(T), T.tensor(2.0, dtype=T.float64, requires_grad=True)
    y = x * 1
    a = y[1:]
    b = a.t()
    c = b[1:3]
    c.mul_(w)
    a[0].add_(w)
    b[3].neg_()
    y[0] = y[2] + w
    log(y, c)
    log((yield T.autograd.grad((y * y).sum() + c.sum(), [x, w])))


@both
def test_the_function_of_a_view_is_made_anew_when_it_is_read(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 1
    v = y[:1]
    first = v.grad_fn
    log(v.grad_fn is first)
    y.add_(1)
    second = v.grad_fn
    log(second is first, v.grad_fn is second)
    y[1:].add_(1)
    log(v.grad_fn is second)
    v.add_(1)
    third = v.grad_fn
    log(v.grad_fn is third, y.grad_fn)


@both
def test_second_derivatives_through_changes_of_views(T, log):
    x = leaf(T, 1.0, 2.0, 3.0)
    y = x * x
    y[1:].mul_(x[:2])
    y[:2].exp_()
    (g,) = yield T.autograd.grad(y.sum(), x, create_graph=True)
    log(g)
    log((yield T.autograd.grad(g.sum(), x)))


@both
def test_expanded_tensors(T, log):
    x = leaf(T, 1.0)
    y = (x * 1).expand(3)
    log(y._is_view(), y)
    attempt(log, y.add_, 1)
    yield (y * T.tensor([1.0, 2.0, 3.0], dtype=T.float64)).sum().backward()
    log(x.grad)


# -- views without gradient ------------------------------------------------------------------


@both
def test_a_view_made_in_no_grad_is_not_changed_with_grad(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 1
    with T.no_grad():
        v = y[:1]
        w = v[:1]
    log(v.requires_grad, v.is_leaf, v._base is y)
    attempt(log, v.add_, 1)
    attempt(log, w.add_, 1)
    attempt(log, v[:1].add_, 1)
    with T.no_grad():
        v.add_(1)
    log(y, v, y._version)
    yield y.sum().backward()
    log(x.grad)


@both
def test_a_view_made_in_no_grad_whose_base_has_changed(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 1
    with T.no_grad():
        v = y[:1]
    y.mul_(2)
    attempt(log, lambda: v.grad_fn)
    log(v)


@both
def test_a_view_of_a_plain_tensor_made_in_no_grad(T, log):
    base = T.zeros(2, dtype=T.float64)
    with T.no_grad():
        v = base[:1]
    w = leaf(T, 3.0)
    attempt(log, v.mul_, w)
    v.add_(1)
    log(base)


@both
def test_views_of_leaves_in_no_grad(T, log):
    x = leaf(T, 1.0, 2.0)
    with T.no_grad():
        v = x[:1]
        v.add_(5)
        log(v.requires_grad, x)
    attempt(log, v.add_, 1)
    attempt(log, x[:1].add_, 1)
    yield (x * x).sum().backward()
    log(x.grad)


@both
def test_views_in_inference_mode(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 1
    with T.inference_mode():
        v = y[:1]
        own = T.ones(2)
        part = own[:1]
    log(v.is_inference(), v.requires_grad, own.is_inference(), part.is_inference())
    attempt(log, v.add_, 1)
    attempt(log, own.add_, 1)
    attempt(log, part.add_, 1)


# -- several views at once -------------------------------------------------------------------


@both
def test_outputs_of_functions_of_several_views_are_not_changed(T, log):
    for several in (
        lambda y: y.unbind(0),
        lambda y: y.split(2),
        lambda y: y.split([1, 3]),
        lambda y: y.chunk(2),
        lambda y: T.split(y, 2),
        lambda y: T.unbind(y),
        lambda y: T.chunk(y, 2),
        lambda y: list(y),
    ):
        x = leaf(T, 1.0, 2.0, 3.0, 4.0)
        y = x * 1
        parts = several(y)
        log(len(parts), parts[0]._is_view(), parts[0]._base is y)
        attempt(log, parts[0].add_, 1)
        attempt(log, parts[0].view(-1).add_, 1)
        log(y, y._version)
        yield (parts[0].sum() * 2 + parts[1].sum()).backward(retain_graph=True)
        log(x.grad)
        with T.no_grad():
            parts[0].add_(1)
        log(y)
        attempt(log, lambda parts=parts: parts[0].sum())


@both
def test_a_base_of_several_views_may_not_change_and_be_looked_at_through_them(T, log):
    x = leaf(T, 1.0, 2.0)
    y = x * 1
    a, _ = y.unbind(0)
    y.mul_(2)
    attempt(log, lambda: a.grad_fn)
    log(a)
    yield y.sum().backward()
    log(x.grad)


@both
def test_several_views_of_what_needs_no_gradient(T, log):
    base = T.zeros(4, dtype=T.float64)
    a, b = base.chunk(2)
    a.add_(1)
    log(base)
    attempt(log, b.add_, leaf(T, 1.0, 2.0))
    log(base)


# -- views in Functions ----------------------------------------------------------------------


@both
def test_views_made_in_functions(T, log):
    def backward(ctx, gradient):
        return T.cat([gradient * 10, gradient * 0])

    Part = function_of(T, lambda ctx, x: x[:1], backward)
    x = leaf(T, 1.0, 2.0)
    y = x * 1
    v = Part.apply(y)
    log(v._is_view(), v._base is y)
    attempt(log, v.add_, 1)
    yield v.sum().backward(retain_graph=True)
    log(x.grad)
    y.add_(1)
    attempt(log, lambda: v.grad_fn)


# -- ours ----------------------------------------------------------------------------------------


def test_many_views_of_one_base_are_forgotten_when_they_are_gone():
    x = ag.ones(4, requires_grad=True) * 1
    for _ in range(1_000):
        x[:1]
    assert len(x._counter.views or ()) <= 64


def test_detached_tensors_of_a_leaf_are_forgotten_with_them():
    """A leaf knows them, to change them with itself; dead ones are looked for now and then."""
    x = ag.tensor([1.0, 2.0], requires_grad=True)
    kept = [x.detach() for _ in range(40)]
    for _ in range(1_000):
        x.detach()
    assert x._counter.sharers() == {*kept}
    assert len(x._counter.aliases) <= 128


@pytest.mark.parametrize("length", [1_000])
def test_a_long_chain_of_views_does_not_recurse(length):
    x = ag.ones(4, requires_grad=True)
    y = v = x * 1
    for _ in range(length):
        v = v.view(2, 2).view(4)
    v.mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [3.0] * 4


@both
def test_results_of_composed_functions_are_no_views(T, log):
    """They can be detached and changed in place, and be asked for after a view of them changed."""
    x = leaf(T, 1.0, 2.0, 3.0, 4.0)
    for function in (
        lambda y: T.kron(y, y),
        lambda y: y.take(T.tensor([[0, 1], [2, 3]])),
        lambda y: T.rot90(y.reshape(2, 2)),
        lambda y: T.unsafe_chunk(y, 2)[1],
    ):
        log(function(x)._is_view())
        log(function(x).detach_())
        y = function(x)
        y.reshape(-1)[:1].mul_(2)
        log(y)
        gradients = yield T.autograd.grad(y.sum(), [x, y], allow_unused=True)
        log(*gradients)
    # What this one has made is saved: it must not change.
    y = x.reshape(2, 2).cumprod(0)
    log(y._is_view(), y.detach_())
