"""Programs of complex tensors and views of their parts, the same in PyTorch and here."""

from plain_parity import attempted, numbers, plainly


def layouts(T):
    """Complex tensors of shape (3, 2) that lie differently in memory."""
    return (
        numbers(T, 3, 2, dtype="complex128"),
        numbers(T, 2, 3, dtype="complex128").t(),
        numbers(T, 6, 2, dtype="complex128")[::2],
    )


@plainly
def test_parts_are_views(T, log):
    for z in (*layouts(T), numbers(T, dtype="complex128"), numbers(T, 0, dtype="complex128")):
        pairs = T.view_as_real(z)
        log(pairs, pairs._is_view(), T.view_as_complex(pairs))
        log(z.real, z.imag, z.real._is_view(), z.imag._is_view())


@plainly
def test_parts_are_changed_in_place(T, log):
    for z in layouts(T):
        leaf = z.detach().requires_grad_()
        computed = leaf * 1
        computed.real.mul_(3)
        log(computed, computed.grad_fn, T.autograd.grad(computed.abs().sum(), leaf))
        computed = leaf * 1
        computed.imag = T.ones(3, 2, dtype=T.float64)
        log(computed, T.autograd.grad((computed * computed).abs().sum(), leaf))
        computed = leaf * 1
        computed.real = T.ones(2, dtype=T.float64)
        T.view_as_real(computed)[..., 1].add_(2)
        log(computed, T.autograd.grad((computed * computed).abs().sum(), leaf))


@plainly
def test_parts_count_changes_together(T, log):
    z = numbers(T, 2, dtype="complex128", leaf=True)
    attempted(log, "a view of a leaf", z.real.add_, 1)
    squares = (z * z).abs().sum()
    with T.no_grad():
        z.imag.zero_()
    log(z._version, z.real._version)
    attempted(log, "modified by an inplace operation", T.autograd.grad, squares, z)


@plainly
def test_derivatives_of_parts(T, log):
    def function(z):
        return T.view_as_real(z) * z.real.unsqueeze(-1) + T.view_as_complex(
            T.view_as_real(z * z)
        ).imag.unsqueeze(-1)

    check = T.autograd.gradcheck
    for z in layouts(T):
        leaf = z.detach().requires_grad_()
        log(check(function, leaf), T.autograd.gradgradcheck(function, leaf))
        log(check(function, leaf, check_forward_ad=True, check_batched_grad=True))
        log(T.func.jvp(function, (z.clone(),), (z * 1j,)))
        log(T.func.vmap(function)(z.clone()))


@plainly
def test_real_numbers_seen_as_complex_ones(T, log):
    leaf = numbers(T, 2, 2, 2, leaf=True)
    base = leaf.clone()
    T.view_as_real(T.view_as_complex(base)).mul_(2)
    log(base, T.autograd.grad(base.sum(), leaf))
    base = leaf.clone()
    T.view_as_complex(base).reshape(4).mul_(2j)
    log(base, T.autograd.grad(base.sum(), leaf))
    parts = T.view_as_complex(leaf.clone()).unbind(0)
    attempted(log, "multiple views", parts[0].add_, 1)


@plainly
def test_what_has_no_such_view(T, log):
    for expected, call in (
        ("complex", lambda: T.view_as_real(T.ones(2))),
        ("last dimension of size 2", lambda: T.view_as_complex(T.ones(3))),
        ("one or more dimensions", lambda: T.view_as_complex(T.ones(()))),
        ("stride 1", lambda: T.view_as_complex(T.ones(2, 2).t())),
        ("only supported for", lambda: T.view_as_complex(T.ones(2, 2).long())),
        ("divisible by 2", lambda: T.view_as_complex(T.ones(3, 5)[:, :2])),
        ("imag is not implemented", lambda: T.ones(2).imag),
    ):
        attempted(log, expected, call)
