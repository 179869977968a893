"""Programs with hooks on the gradients of modules, in PyTorch and here."""

from parity import both, raised


def module_of_two(T):
    class Two(T.nn.Module):
        def forward(self, x, y, z=None):
            return x * 2, (x * 3).detach(), x * x

    return Two()


@both
def test_gradients_that_are_undefined_leave_a_module_as_zeros(T, log):
    module, index = module_of_two(T), T.tensor([1])
    module.register_full_backward_pre_hook(lambda module, entering: log(entering))
    module.register_full_backward_hook(lambda module, *gradients: log(*gradients))
    for output in (0, 2):
        x, y = T.ones(2, requires_grad=True), T.ones(2, requires_grad=True)
        yield module(x, y, index)[output].sum().backward()
        log(x.grad, y.grad)
        yield module(x, T.ones(2), index)[output].sum().backward()
        log(x.grad)
        yield module(x, y=y)[output].sum().backward()
        log(x.grad, y.grad)


@both
def test_hooks_do_not_see_derivatives_of_derivatives(T, log):
    module, x = T.nn.MSELoss(), T.ones(1, requires_grad=True)
    module.register_full_backward_hook(lambda module, *gradients: log("hook", *gradients))
    gradients = yield T.autograd.grad(module(x, T.zeros(1)), x, create_graph=True)
    log((yield T.autograd.grad(gradients[0], x)))


@both
def test_what_hooks_may_put_in_the_place_of_gradients(T, log):
    for change in (
        lambda module, entering, leaving: tuple(g * 10 for g in entering),
        lambda module, entering, leaving: (entering[0], None),
        lambda module, entering, leaving: entering[:1],
    ):
        module = module_of_two(T)
        module.register_full_backward_hook(change)
        x, y = T.ones(2, requires_grad=True), T.ones(2, requires_grad=True)
        yield from raised(log, module(x, y)[2].sum().backward)
        log(x.grad, y.grad)
