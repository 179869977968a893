"""Programs of `vmap` over functions of integers and truth values, the same in PyTorch and here."""

from plain_parity import attempted, plainly


@plainly
def test_dtypes_change_within(T, log):
    x = T.tensor([[1.5, -2.0, 0.0], [3.0, 0.0, -1.0]])
    for function in (
        lambda a: a.long(),
        lambda a: (a > 0).sum(),
        lambda a: (a > 0).float().mean(),
        lambda a: a.sum(dtype=T.int64),
        lambda a: a.count_nonzero(),
        lambda a: a.to(T.int32).prod(),
        lambda a: (a != 0).cumsum(0),
        lambda a: T.signbit(a),
    ):
        log(T.func.vmap(function)(x))


@plainly
def test_what_counts_and_searches(T, log):
    x = T.tensor([[1, 2, 2], [0, 0, 1]])
    edges = T.tensor([1, 2])
    for function in (
        lambda a: T.bincount(a, minlength=4),
        lambda a: T.isin(a, T.tensor([1])),
        lambda a: T.isin(T.tensor([1, 2]), a),
        lambda a: T.searchsorted(a.sort()[0], edges),
        lambda a: T.bucketize(a, edges, right=True),
        lambda a: T.nn.functional.one_hot(a, 3),
    ):
        log(T.func.vmap(function)(x))
    attempted(log, "", T.func.vmap(lambda a: T.bincount(a, minlength=1)), x)


@plainly
def test_how_examples_lie_in_memory(T, log):
    x = T.zeros(2, 3, 4)

    def noted(a):
        log(tuple(a.stride()), a.stride(0), a.stride(-1), a.is_contiguous())
        return a

    T.func.vmap(noted)(x)
    T.func.vmap(noted, in_dims=2)(x)
    T.func.vmap(lambda a: noted(a.t()))(x)
    T.func.vmap(T.func.vmap(noted))(T.zeros(2, 3, 4, 5))


@plainly
def test_masks_with_fewer_axes(T, log):
    for mask in (T.tensor(True), T.tensor([True, False])):
        log(T.func.jacrev(lambda x: x.masked_fill(mask, 2.0))(T.ones(3, 2)))  # noqa: B023
        log(T.func.vmap(lambda m: T.ones(3, 2).masked_fill(m, 2.0))(T.stack([mask, ~mask])))


@plainly
def test_uneven_windows(T, log):
    x = T.arange(28.0).reshape(2, 2, 7)
    for indices in (False, True):
        log(T.func.vmap(lambda a: T.nn.functional.adaptive_max_pool1d(a, 3, indices))(x))  # noqa: B023
