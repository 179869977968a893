"""Programs about the shape and the layout of gradients, in PyTorch and here."""

from parity import both


def ones(T, *shape):
    return T.ones(*shape, dtype=T.float64)


@both
def test_gradients_are_laid_out_like_their_leaf(T, log):
    for shape, order in (((2, 3), (1, 0)), ((2, 3, 4), (1, 0, 2)), ((2, 3, 4), (2, 1, 0)),
                         ((2, 3, 4, 5), (0, 3, 1, 2))):  # fmt: skip
        for operation in (lambda w: w * w, lambda w: w, lambda w: w.exp().contiguous()):
            for create_graph in (False, True):
                w = ones(T, *shape).permute(*order).requires_grad_()
                for _ in range(2):
                    yield operation(w).sum().backward(create_graph=create_graph)
                    log(w.grad.stride())


@both
def test_the_layout_stays_when_recorded_gradients_are_added(T, log):
    w = ones(T, 2, 3).t().requires_grad_()
    yield (w * w).sum().backward(create_graph=True)
    log(w.grad, w.grad.requires_grad)
    yield (w.grad * w).sum().backward()
    log(w.grad, w.grad.stride())


@both
def test_gradients_of_a_leaf_with_gaps_are_contiguous(T, log):
    for create_graph in (False, True):
        for w in (ones(T, 4, 3)[::2], ones(T, 1, 3).expand(2, 3), ones(T, 4, 3).t()[:, ::2]):
            w.requires_grad_()
            yield (w * w).sum().backward(create_graph=create_graph)
            log(w.grad.stride())


@both
def test_zeros_in_the_place_of_unused_gradients_are_no_batch(T, log):
    x, unused = T.tensor([1.0, 2.0, 3.0], requires_grad=True), T.ones(2, requires_grad=True)
    y = x * x
    for options in ({"allow_unused": True}, {"materialize_grads": True},
                    {"materialize_grads": True, "create_graph": True}):  # fmt: skip
        found = yield T.autograd.grad(
            [y], [x, unused], [T.eye(3)], is_grads_batched=True, retain_graph=True, **options
        )
        log(found, [g is not None and g.requires_grad for g in found])


@both
def test_a_batch_of_gradients_has_to_be_given(T, log):
    x, s = T.ones(3, requires_grad=True), T.ones((), requires_grad=True)
    for y, given in ((x * x, [None]), (x * x, None), (x * x, [T.ones(3)]), (x * x, [T.ones(2, 2)]),
                     (s * s, [None]), (s * s, [T.ones(2)])):  # fmt: skip
        try:
            log(
                (
                    yield T.autograd.grad(
                        [y], [x, s], given, allow_unused=True, is_grads_batched=True
                    )
                )
            )
        except (RuntimeError, ValueError) as error:
            log(error)
