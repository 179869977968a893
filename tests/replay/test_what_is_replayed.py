"""Functions that usual programs call: calls with other values are replayed, as eager ones.

PyTorch's samples of every function are compared in `tests/ops/test_replays_of_every_function.py`.
"""

import contextlib

import pytest
from replay_counts import counts

import asyncgrad as ag
from asyncgrad import distributions, nn

F = nn.functional


def values(result):
    parts = [result] if isinstance(result, ag.Tensor) else result
    return [repr(part.tolist()) for part in parts]


def check(function, *inputs):
    """Compare calls with other inputs, each from the same random numbers."""
    fast = ag.compile(function, fullgraph=True)
    for number, x in enumerate(inputs):
        ag.manual_seed(number)
        expected = values(function(x))
        ag.manual_seed(number)
        assert values(fast(x)) == expected
    assert counts(fast) == (1, len(inputs) - 1)


@pytest.mark.parametrize(
    "function",
    [
        *[lambda x, m=mode: F.pad(x, (1, 2, 1, 1), mode=m)
          for mode in ("constant", "reflect", "replicate", "circular")],
        lambda x: F.unfold(x, 3),
        lambda x: F.fold(F.unfold(x, 3), (6, 6), 3),
        lambda x: F.interpolate(x, scale_factor=2),
        lambda x: F.interpolate(x, size=(5, 9), mode="bilinear"),
        lambda x: F.grid_sample(x, x[..., :2].permute(0, 2, 3, 1)[..., :2], align_corners=False),
        lambda x: F.instance_norm(x),
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: F.feature_alpha_dropout(x, 0.5, training=True),
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.max_pool2d(x, 2, return_indices=True),
        lambda x: F.adaptive_max_pool2d(x, 4),
        lambda x: F.fractional_max_pool2d(x, 2, output_size=3),
        lambda x: F.multi_margin_loss(x[0, 0], x[1, 0].argmax(1)),
        lambda x: F.multilabel_margin_loss(x[0, 0], x[1, 0].argsort(1)),
    ],
)  # fmt: skip
def test_images(function):
    ag.manual_seed(9)
    check(function, *[ag.randn(2, 2, 6, 6) for _ in range(3)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.cumprod(1),
        lambda x: x.signbit() * x,
        lambda x: ag.bucketize(x, ag.tensor([-0.5, 0.0, 1.0])),
        lambda x: ag.searchsorted(x.sort(1).values, x, right=True),
        lambda x: ag.isin(x.round(), ag.tensor([0.0, 1.0])),
        lambda x: ag.zeros(4, 4).index_add(0, ag.tensor([0, 1, 1, 3]), x, alpha=2),
        lambda x: F.pdist(x),
        lambda x: ag.view_as_real(
            ag.stft(x[0], 4, window=ag.ones(4), center=False, return_complex=True)
        ),
        lambda x: F.gumbel_softmax(x, hard=True),
        lambda x: x * ag.empty(4, 4).normal_(),
        lambda x: x * x.new_empty((4, 1)).bernoulli_(0.7),
        lambda x: x * ag.empty_like(x).uniform_(-1, 1),
        lambda x: ag.linalg.solve(x + 5 * ag.eye(4), x),
        lambda x: ag.linalg.cholesky(x @ x.T + ag.eye(4)),
        lambda x: ag.linalg.det(x),
        lambda x: ag.linalg.slogdet(x),
        lambda x: ag.linalg.inv(x + 5 * ag.eye(4)),
        lambda x: ag.linalg.svd(x[:3]),
        lambda x: ag.linalg.svd(x[:, :3], full_matrices=False),
        lambda x: ag.svd(x, compute_uv=False),
        lambda x: ag.linalg.eigh(x @ x.T),
        lambda x: ag.linalg.eigh(x, "U"),
        lambda x: ag.linalg.eig(x),
        lambda x: ag.linalg.qr(x[:3]),
        lambda x: ag.linalg.qr(x[:, :3], "complete"),
        lambda x: ag.linalg.lu(x),
        lambda x: ag.linalg.lu_solve(*ag.linalg.lu_factor(x), x, adjoint=True),
        lambda x: ag.linalg.lstsq(x[:, :3], x)[:3],
        lambda x: ag.linalg.matrix_rank(x, atol=1.0),
        lambda x: ag.linalg.pinv(x, atol=x[0, 0].abs()),
        lambda x: ag.linalg.cond(x),
        lambda x: ag.linalg.norm(x, "nuc"),
        lambda x: x.quantile(0.3, 1),
        lambda x: x.quantile(x[0].sigmoid()),
        lambda x: x.log().nanquantile(ag.tensor([0.2, 0.8]), 0, interpolation="nearest"),
        lambda x: x.cummax(1),
        lambda x: x.cummin(0),
        lambda x: x.histc(3),
        lambda x: F.binary_cross_entropy(x.sigmoid(), (x > 0).float()),
        lambda x: distributions.Normal(x, x.exp()).log_prob(x * 2),
        lambda x: distributions.Categorical(logits=x).entropy(),
        lambda x: distributions.Normal(x, 1.0).rsample(),
        lambda x: distributions.Uniform(x, x + 1).log_prob(x + 0.5),
        lambda x: distributions.Gamma(x.exp(), 2.0).rsample(),
        lambda x: distributions.Beta(0.5, 0.5).sample() * x,
        lambda x: distributions.Dirichlet(x.exp()).sample(),
        lambda x: distributions.StudentT(x.exp()).rsample(),
    ],
)
def test_matrices_and_random_numbers(function):
    ag.manual_seed(9)
    check(function, *[ag.randn(4, 4) for _ in range(3)])


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: sum(part.pow(2).sum() for part in ag.linalg.svd(x, full_matrices=False)),
        lambda x: ag.linalg.svdvals(x).max(),
        lambda x: ag.linalg.eigh(x + x.T)[1][0].square().sum(),
        lambda x: ag.linalg.eigvals(x).abs().sum(),
        lambda x: sum(part.sum() for part in ag.linalg.qr(x)),
        lambda x: sum(part.sum() for part in ag.linalg.lu(x)),
        lambda x: x.quantile(x[0].sigmoid()).sum(),
        lambda x: x.cummax(1).values.exp().sum(),
    ],
)
def test_gradients_within_and_behind(loss):
    """A pass in the call, one through its result, and one through the gradients of that."""
    w = nn.Parameter(ag.eye(4) + 0.1)
    inputs = [ag.randn(4, 4, dtype=ag.float32) for _ in range(3)]
    check(lambda x: ag.grad(loss(x @ w), w), *inputs)
    fast = ag.compile(lambda x: loss(x @ w), fullgraph=True)
    for x in inputs:
        found, expected = [
            (out, *ag.grad(out, w, retain_graph=True), ag.grad(out, w, create_graph=True)[0])
            for out in (fast(x), loss(x @ w))
        ]
        assert values(found) == values(expected)
        twice = [ag.grad(parts[-1].square().sum(), w) for parts in (found, expected)]
        assert values(twice[0]) == values(twice[1])
    assert counts(fast) == (1, 2)


@pytest.mark.parametrize("reduce", ["amax", "amin", "prod", "mean"])
@pytest.mark.parametrize("include_self", [False, True])
def test_values_that_are_reduced_where_an_index_puts_them(reduce, include_self):
    """With gradients of gradients; which values are the greatest, or 0, differs between calls."""
    index = ag.tensor([0, 2, 0, 2, 0])

    def slopes(x):
        x = x.detach().requires_grad_()
        options = {"reduce": reduce, "include_self": include_self}
        out = x[0, :3].scatter_reduce(0, index, x[1], **options)
        out = out + x[:, :3].index_reduce(0, index[:2] // 2, x[:, 2:], **options).sum(0)
        (slope,) = ag.grad((out**3).sum(), x, create_graph=True)
        return out.detach(), slope.detach(), ag.grad((slope * x.detach()).sum(), x)[0]

    inputs = [ag.randn(2, 5) for _ in range(4)]
    inputs[1][:, 2:] = 0.0
    inputs[2][1] = 1.0
    check(slopes, *inputs)


def test_values_that_are_multiplied_in_place_where_an_index_puts_them():
    index = ag.tensor([0, 2, 0])
    check(lambda x: x.scatter(0, index, x * 2, reduce="multiply"), ag.randn(3), ag.randn(3))


def test_decompositions_fail_as_in_eager_calls():
    """Also where nothing uses the result, and after a change."""
    memory = ag.zeros(2)

    def function(x, y):
        ag.linalg.svd(x)
        memory.add_(1)
        return y.quantile(x[0], 0).sum() + ag.linalg.svdvals(y)

    fast = ag.compile(function)
    for _ in range(2):
        fast(ag.eye(2), ag.eye(2))
    assert counts(fast) == (1, 1)
    bad = ag.full((2, 2), float("nan"))
    with pytest.raises(RuntimeError, match="svd: The algorithm failed to converge"):
        fast(bad, ag.eye(2))
    with pytest.raises(RuntimeError, match="q values must be in the range"):
        fast(3 * ag.eye(2), ag.eye(2))
    assert memory.tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="svd: The algorithm failed to converge"):
        fast(ag.eye(2), bad)
    assert memory.tolist() == [4, 4]


def test_a_distribution_that_is_there():
    prior = distributions.Normal(ag.zeros(4), ag.ones(4))
    check(
        lambda x: distributions.kl_divergence(distributions.Normal(x, 1.0), prior),
        *[ag.randn(4) for _ in range(3)],
    )


def test_a_mask_is_causal_or_not():
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    fast = ag.compile(lambda x, mask: encoder(x, mask).detach())
    causal = nn.Transformer.generate_square_subsequent_mask(3)
    x = ag.randn(2, 3, 4)
    for mask in (causal, causal.clone(), ag.zeros(3, 3), causal, ag.zeros(3, 3)):
        assert fast(x, mask).tolist() == encoder(x, mask).tolist()
    assert counts(fast) == (2, 3)


def test_arguments_are_checked_after_a_change_too():
    """Two networks in turn, as adversarial training has them; an error is that of an eager call."""
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    steps = [ag.optim.SGD(net.parameters(), lr=0.1) for net in (first, second)]

    def step(x, target, height):
        losses = []
        for net, optimizer in zip((first, second), steps, strict=True):
            optimizer.zero_grad()
            loss = F.binary_cross_entropy(net(x).sigmoid(), target)
            normal = distributions.Normal(net(x), 1.0)
            (loss - normal.log_prob(target * height).mean()).backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    fast = ag.compile(step, fullgraph=True)
    for number in range(3):
        fast(ag.full((2, 3), float(number)), ag.ones(2, 3), ag.ones(1))
    assert counts(fast) == (1, 2)
    with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
        fast(ag.ones(2, 3), ag.full((2, 3), 2.0), ag.ones(1))
    with pytest.raises(ValueError, match="invalid values"):
        fast(ag.ones(2, 3), ag.ones(2, 3), ag.full((1,), float("nan")))


def test_gradients_by_the_parameters_of_what_is_drawn():
    """The derivative of a gamma number follows from the number that this call has drawn."""
    shape = nn.Parameter(ag.tensor([0.5, 1.0, 4.0]))

    def function(x):
        draw = distributions.Gamma(shape * x, 1.0).rsample()
        return draw.detach(), ag.grad((draw * x).sum(), shape)[0]

    check(function, *[ag.full((3,), n + 1.0) for n in range(4)])


@pytest.mark.parametrize("options", [{}, {"scale_grad_by_freq": True}])
def test_rows_for_padding_get_no_gradient(options):
    """Which rows these are is another in each call."""
    table = nn.Parameter(ag.arange(12.0).reshape(4, 3) / 7)

    def function(x):
        found = F.embedding(x, table, padding_idx=1, **options)
        return ag.grad((found * found).sum(), table)

    check(function, *[ag.tensor(row) for row in ([0, 1, 1], [1, 2, 2], [3, 3, 3])])


@pytest.mark.parametrize(
    "function",
    [
        ag.linalg.inv_ex,
        lambda x: ag.linalg.cholesky_ex(x, upper=True),
        lambda x: ag.linalg.solve_ex(x, x[0] + 1),
        ag.linalg.cond,
    ],
)
def test_functions_that_go_on_where_a_matrix_has_no_result(function):
    """Calls in which each has one are replayed, and others made as always."""
    regular = [ag.eye(3).repeat(2, 1, 1) * (n + 1) + 0.1 for n in range(4)]
    singular = ag.stack([ag.eye(3), ag.zeros(3, 3)])
    fast = ag.compile(function)
    for x in (*regular[:2], singular, regular[2], singular, *regular):
        assert values(fast(x)) == values(function(x))
    assert counts(fast)[1] >= 5


@pytest.mark.parametrize("options", [{"reduction": "none"}, {"blank": 4, "zero_infinity": True}])
def test_alignments_of_labels(options):
    """There is a program for each length of the longest target; errors are those of eager calls."""
    w = nn.Parameter(ag.eye(5) + 0.1)

    def function(x, labels, ends, lengths):
        loss = F.ctc_loss((x @ w).log_softmax(-1), labels, ends, lengths, **options)
        return loss.detach(), *ag.grad(loss.sum(), w)

    fast = ag.compile(function)
    ag.manual_seed(3)
    for number in range(9):
        x, labels = ag.randn(6, 3, 5), ag.randint(1, 4, (3, 4))
        lengths = ag.tensor([number % 3, 1, (number // 3) % 2 + 2])
        given = (x, labels, ag.tensor([6, 3 + number % 2, 5]), lengths)
        assert values(fast(*given)) == values(function(*given))
        bad = ag.full((3, 4), 7)
        with pytest.raises(RuntimeError, match="targets must be labels from 0 to 4"):
            fast(x, bad, *given[2:])
    assert counts(fast) == (2, 7)


def test_a_check_of_constants_may_come_after_a_draw():
    """As in contrastive learning, with the number of each row as its class."""

    def function(x):
        first, second = x + ag.randn_like(x), x + ag.randn_like(x)
        return F.cross_entropy(first @ second.T, ag.arange(4))

    check(function, *[ag.randn(4, 3) for _ in range(3)])


def test_a_check_that_fails_after_a_change_has_the_words_of_an_eager_call():
    w = ag.ones(3, requires_grad=True)

    def step(loc, high):
        (w * loc).sum().backward()
        return distributions.Normal(loc, 1.0), distributions.Uniform(loc, high)

    fast = ag.compile(lambda *args: step(*args) and None, fullgraph=True)
    for number in range(3):
        fast(ag.ones(3) * number, ag.full((3,), 9.0))
    assert counts(fast) == (1, 2)
    for args in ((ag.full((3,), float("nan")), ag.ones(3)), (ag.ones(3), ag.zeros(3))):
        texts = []
        for function in (fast, step):
            with pytest.raises(ValueError, match=r"loc|low") as caught:
                function(*args)
            texts.append(str(caught.value))
        assert texts[0] == texts[1]


@pytest.mark.parametrize("use", [lambda x: ag.linalg.inv(x), lambda x: x[x.long()]])
def test_an_operation_that_fails_raises_even_if_nothing_reads_its_result(use):
    def function(x):
        use(x)
        return x * 2

    fast = ag.compile(function)
    assert [fast(ag.eye(2)).tolist() for _ in range(2)] == [[[2, 0], [0, 2]]] * 2
    with pytest.raises((RuntimeError, IndexError), match=r"singular|out of bounds"):
        fast(ag.full((2, 2), 9.0))


@pytest.mark.parametrize("options", [{}, {"avg_fn": lambda mean, x, n: 0.9 * mean + 0.1 * x}])
def test_averages_of_weights(options):
    """With a context manager that does nothing, as training loops have it."""
    context = contextlib.nullcontext()

    def training():
        ag.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        optimizer = ag.optim.SGD(net.parameters(), lr=0.1)
        averaged = ag.optim.swa_utils.AveragedModel(net, **options)

        def step(x):
            with context:
                loss = net(x).pow(2).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            averaged.update_parameters(net)
            return loss.detach()

        return step, averaged

    (eager, expected), (step, averaged) = training(), training()
    fast = ag.compile(step, fullgraph=True)
    for number in range(4):
        x = ag.randn(3, 4) + number
        assert fast(x).tolist() == eager(x).tolist()
        assert values(averaged.state_dict().values()) == values(expected.state_dict().values())
    assert counts(fast) == (1, 3)


@pytest.mark.parametrize("kind", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_steps_of_recurrent_cells(kind):
    """The state goes from one call to the next."""
    cell = kind(3, 4)
    fast, states = ag.compile(lambda x, state: cell(x, state)), []
    for function in (fast, cell):
        state = ag.zeros(2, 4), ag.zeros(2, 4)
        state = state if kind is nn.LSTMCell else state[0]
        for number in range(5):
            state = function(ag.full((2, 3), float(number)), state)
        states.append([x.tolist() for x in (state if kind is nn.LSTMCell else (state,))])
    assert states[0] == states[1]
    assert "replayed 3 times" in fast.explain()


def test_functions_that_are_made_around_numpys_are_replayed():
    fast = ag.compile(lambda x: (ag.any(x), ag.all(x), ag.cummax(x, 0), ag.cummin(x, 0)))
    for number in range(3):
        found = fast(ag.arange(3.0) - number)
        assert [found[0].item(), found[1].item()] == [True, number > 2]
        assert found[2].values.tolist() == [-number, 1 - number, 2 - number]
    assert "replayed 2 times" in fast.explain()


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
@pytest.mark.parametrize("how", ["once", "recorded", "batched"])
def test_zeros_for_inputs_without_a_gradient(how, device):
    """Each call gets zeros of its own."""
    w, other = (ag.ones(n, requires_grad=True, device=device) for n in (3, 2))
    options = {
        "once": {"grad_outputs": ag.ones(3, device=device)},
        "recorded": {"grad_outputs": ag.ones(3, device=device), "create_graph": True},
        "batched": {"grad_outputs": ag.eye(3, device=device), "is_grads_batched": True},
    }[how]

    @ag.compile(fullgraph=True)
    def slopes(x):
        found = ag.grad(x * w, [w, other], materialize_grads=True, **options)
        return [one.detach() * 1 for one in found]

    for number in range(3):
        first, zeros = slopes(ag.ones(3, device=device) * number)
        assert first.sum().item() == number * 3
        assert zeros.unique().tolist() == [0]
        zeros.add_(1)
    assert counts(slopes) == (1, 2)
