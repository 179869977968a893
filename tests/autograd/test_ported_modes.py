"""Programs in forward mode, in inference mode and about changes in place, in PyTorch and here."""

import pytest
from functions import function_of
from parity import attempt, both, leaf

# PyTorch's forward mode compiles its decompositions the first time it is used.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


def pair(T):
    return T.tensor([1.0, 2.0], dtype=T.float64), T.tensor([3.0, 4.0], dtype=T.float64)


# -- forward mode ----------------------------------------------------------------------------------


@both
def test_a_dual_tensor_shares_memory_and_versions(T, log):
    fwAD = T.autograd.forward_ad
    primal, tangent = pair(T)
    with fwAD.dual_level():
        dual = fwAD.make_dual(primal, tangent)
        primal.add_(1)
        found = fwAD.unpack_dual(dual)
        log(found.tangent is tangent, primal._version == dual._version == found.primal._version)
        primal.add_(1)
        tangent.add_(1)
        log(found.primal, dual, found.tangent, fwAD.unpack_dual(primal).tangent)


@both
def test_gradients_of_a_dual_tensors_parts(T, log):
    fwAD = T.autograd.forward_ad
    primal, tangent = pair(T)
    with fwAD.dual_level():
        dual = fwAD.make_dual(primal.requires_grad_(), tangent.requires_grad_())
        for part in fwAD.unpack_dual(dual):
            log((yield T.autograd.grad(part.sum(), (primal, tangent), allow_unused=True)))
        with T.no_grad():
            unrecorded = dual * 3
        log(*fwAD.unpack_dual(unrecorded), unrecorded.requires_grad)


@both
def test_detached_tensors_have_no_tangent(T, log):
    fwAD = T.autograd.forward_ad
    primal, tangent = pair(T)
    with fwAD.dual_level():
        dual = fwAD.make_dual(primal.requires_grad_(), tangent)
        log(fwAD.unpack_dual(dual.detach() * 2).tangent)
        copy = dual.clone()
        kept = copy * 2
        copy.detach_()
        log(*fwAD.unpack_dual(copy * 2), copy.requires_grad, fwAD.unpack_dual(kept).tangent)
        log(fwAD.unpack_dual(dual * 2).tangent)


@both
def test_changes_in_place_of_views_of_dual_tensors(T, log):
    fwAD = T.autograd.forward_ad
    primal, tangent = pair(T)
    with fwAD.dual_level():
        dual = fwAD.make_dual(primal, tangent)
        dual *= 2
        log(fwAD.unpack_dual(primal).tangent, tangent, fwAD.unpack_dual(dual).tangent, primal)
        view = dual.narrow(0, 0, 1)
        view *= 2
        log(fwAD.unpack_dual(dual).tangent, fwAD.unpack_dual(view).tangent)
        other = T.ones(2, dtype=T.float64)
        other[0] = dual[0]
        log(fwAD.unpack_dual(other).tangent)
        other.detach().add_(dual)
        log(fwAD.unpack_dual(other).tangent)
        for method in ("add_", "mul_", "copy_"):
            base = T.ones(2, 2, dtype=T.float64)
            turned, values = base.t(), T.arange(4, dtype=T.float64).reshape(2, 2)
            getattr(turned, method)(fwAD.make_dual(values, values + 1))
            log(*fwAD.unpack_dual(base))
            turned *= 2
            log(*fwAD.unpack_dual(base))


@both
def test_results_with_tangents_are_written_nowhere(T, log):
    fwAD = T.autograd.forward_ad
    primal, tangent = pair(T)
    with fwAD.dual_level():
        dual, plain = fwAD.make_dual(primal, tangent), T.ones(2, dtype=T.float64)
        for given, out in ((plain, dual), (dual, plain)):
            attempt(log, lambda x, out: T.add(x, x, out=out), given, out)
        log((dual.detach() > 0).all())
        dual.eq_(plain)
        log(fwAD.unpack_dual(dual).tangent)


@both
def test_a_function_of_its_own_says_what_has_no_tangent(T, log):
    fwAD = T.autograd.forward_ad
    primal, tangent = pair(T)

    def marked(ctx, x, y):
        copy = y.clone()
        ctx.mark_non_differentiable(copy)
        return x.clone(), copy

    with fwAD.dual_level():
        dual = fwAD.make_dual(primal, tangent)
        of_integers = function_of(
            T, lambda ctx, x, y: (x.clone(), y.clone()), jvp=lambda ctx, x, y: (x, y)
        )
        log(fwAD.unpack_dual(of_integers.apply(dual, T.tensor(3))[1]).tangent)
        not_marked = function_of(T, marked, jvp=lambda ctx, x, y: (x, x.clone()))
        attempt(log, not_marked.apply, dual, T.tensor(3))
        of_others = function_of(
            T, lambda ctx, x: (x.clone(), "text", x.clone()), jvp=lambda ctx, x: (x, None, x)
        )
        first, _, second = of_others.apply(dual)
        log(fwAD.unpack_dual(first).tangent, fwAD.unpack_dual(second).tangent)


# -- inference mode --------------------------------------------------------------------------------


@both
def test_tensors_of_inference_mode_are_turned_in_it(T, log):
    for requires_grad in (True, False):
        with T.inference_mode():
            x = T.ones(1, 2, 3, requires_grad=requires_grad)
            log(x.transpose_(0, 1) is x, tuple(x.shape), T.is_inference(x), x.requires_grad)
            log(tuple(x.squeeze_().shape), tuple(x.unsqueeze_(0).shape))
    attempt(log, x.transpose_, 0, 1)


@both
def test_other_tensors_are_changed_in_inference_mode(T, log):
    for requires_grad in (True, False):
        for change in (lambda x: x.add_(2), lambda x: x.transpose_(0, 1)):
            x = T.ones(1, 2, 3, requires_grad=requires_grad).clone()
            with T.inference_mode():
                for _ in range(2):
                    change(x)
                    log(T.is_inference(x), x.requires_grad, x._version)
                view = x.reshape(-1)
                log(T.is_inference(view), view.requires_grad)
            change(x)
            log(T.is_inference(x), x.requires_grad)
            with T.inference_mode():
                view = x.view(-1)
            change(x)
            attempt(log, lambda view=view: view.grad_fn)
            attempt(log, lambda view=view: view.add_(1) is view)


# -- parts that are changed ------------------------------------------------------------------------


@both
def test_parts_that_are_no_views_are_changed(T, log):
    for split in (
        lambda x: x.unsafe_split(1), lambda x: x.unsafe_split_with_sizes((1, 1, 1)),
        lambda x: x.unsafe_chunk(3), lambda x: x.split(1), lambda x: x.chunk(3),
    ):  # fmt: skip
        x = T.ones(3, 3, requires_grad=True)
        doubled = x + x
        parts = split(doubled)
        log(parts[0]._is_view(), parts[0].requires_grad)
        try:
            parts[0].mul_(parts[1])
        except RuntimeError as error:
            log(error)
            continue
        yield parts[0].sum().backward()
        log(x.grad, doubled)


@both
def test_saved_tensors_that_change_in_every_way(T, log):
    with T.autograd.graph.allow_mutation_on_saved_tensors() as saved:
        x = leaf(T, 1.0, 2.0)
        for change in (
            lambda y: y.sin_(), lambda y: y.view_as(y).sin_(), lambda y: y[:1].mul_(10),
            lambda y: T.sin(y.detach() * 2, out=y.detach()),
        ):  # fmt: skip
            y = x.clone()
            squares = (y**2).sum()
            change(y)
            (g,) = yield T.autograd.grad(squares, x, create_graph=True)
            log(g, (yield T.autograd.grad(g.sum(), x)))
        y = x.clone()
        first = y**2
        y.sin_()
        second = y**2
        y.sin_()
        log(len(list(saved.cloned.items())))
        del first
        log(len(list(saved.cloned.items())))
        del second
        log(len(list(saved.cloned.items())))
        squares = (x**2).sum()
    try:
        yield squares.backward()
    except AssertionError as error:
        log(error)
