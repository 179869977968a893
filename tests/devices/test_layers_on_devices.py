"""Layers, optimisers and what is built on them give on a device what they give on the CPU."""

import copy
import inspect
import io
import pickle

import numpy as np
import pytest

import asyncgrad as ag
import asyncgrad.nn.functional as F
from asyncgrad import nn
from asyncgrad.testing import simulate
from asyncgrad.utils.checkpoint import checkpoint, checkpoint_sequential

X = np.random.default_rng(0).standard_normal
ROW, IMAGE, SIGNAL, VOLUME = X((4, 3)), X((2, 4, 6, 6)), X((2, 4, 7)), X((1, 2, 4, 4, 4))
STEPS = X((3, 2, 4))
CLASSES, CHANCES = np.array([0, 2, 1, 1]), np.random.default_rng(1).uniform(0.1, 0.9, (4, 3))
SIGNS, PLACES = np.array([1, -1, 1, -1]), np.array([[0, 2, -1], [1, -1, 0], [-1, 0, 0], [2, 1, 0]])
PATCHES, RARE = X((2, 8, 2)), np.array([0, 3, 1, 2])


def apart(x):
    """A place for each element of each channel, in a space with room for twice as many an axis."""
    return np.broadcast_to(2 * np.arange(x[0, 0].size).reshape(x[0, 0].shape), x.shape).copy()


#: A layer of every class, and what it is called with.
LAYERS = {
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(3), SIGNAL),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((2, 3)), IMAGE),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(3), SIGNAL),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d((2, 3)), IMAGE),
    "AdaptiveAvgPool3d": (lambda: nn.AdaptiveAvgPool3d((2, 3, 1)), VOLUME),
    "AdaptiveLogSoftmaxWithLoss": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(3, 4, [2], div_value=1.5), ROW, RARE,
    ),
    "AdaptiveMaxPool3d": (lambda: nn.AdaptiveMaxPool3d((2, 3, 1)), VOLUME),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.4), ROW),
    "AvgPool1d": (lambda: nn.AvgPool1d(3, 2, 1), SIGNAL),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), IMAGE),
    "AvgPool3d": (lambda: nn.AvgPool3d(3, 2, 1), VOLUME),
    "BCELoss": (nn.BCELoss, CHANCES, CHANCES[::-1].copy()),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, ROW, CHANCES),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), SIGNAL),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), IMAGE),
    "CELU": (nn.CELU, ROW),
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, groups=2), SIGNAL),
    "Conv2d": (lambda: nn.Conv2d(4, 3, 3, 2, 1, padding_mode="circular"), IMAGE),
    "Conv3d": (lambda: nn.Conv3d(2, 2, 2), VOLUME),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 2, 3), SIGNAL),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 2, 3, 2, 1), IMAGE),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 2, 2), VOLUME),
    "CosineSimilarity": (nn.CosineSimilarity, ROW, CHANCES),
    "CrossEntropyLoss": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), ROW, CLASSES),
    "Dropout": (nn.Dropout, ROW),
    "Dropout1d": (nn.Dropout1d, SIGNAL),
    "Dropout2d": (nn.Dropout2d, IMAGE),
    "Dropout3d": (nn.Dropout3d, VOLUME),
    "ELU": (nn.ELU, ROW),
    "Embedding": (lambda: nn.Embedding(3, 4, padding_idx=1), CLASSES),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(3, 4), CLASSES[:, None]),
    "FeatureAlphaDropout": (nn.FeatureAlphaDropout, IMAGE),
    "Flatten": (nn.Flatten, IMAGE),
    "GELU": (nn.GELU, ROW),
    "GLU": (lambda: nn.GLU(1), SIGNAL[:, :, :6]),
    "GRU": (lambda: nn.GRU(4, 3, 2, bidirectional=True), STEPS),
    "GRUCell": (lambda: nn.GRUCell(3, 2), ROW),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), SIGNAL),
    "Hardsigmoid": (nn.Hardsigmoid, ROW),
    "Hardswish": (nn.Hardswish, ROW),
    "Hardtanh": (nn.Hardtanh, ROW),
    "HuberLoss": (nn.HuberLoss, ROW, CHANCES),
    "Identity": (nn.Identity, ROW),
    "KLDivLoss": (lambda: nn.KLDivLoss(reduction="sum"), ROW, CHANCES),
    "L1Loss": (nn.L1Loss, ROW, CHANCES),
    "LSTM": (lambda: nn.LSTM(4, 3, proj_size=2), STEPS),
    "LSTMCell": (lambda: nn.LSTMCell(3, 2), ROW),
    "LayerNorm": (lambda: nn.LayerNorm(3), ROW),
    "LeakyReLU": (nn.LeakyReLU, ROW),
    "Linear": (lambda: nn.Linear(3, 2), ROW),
    "LogSigmoid": (nn.LogSigmoid, ROW),
    "LogSoftmax": (lambda: nn.LogSoftmax(1), ROW),
    "MSELoss": (nn.MSELoss, ROW, CHANCES),
    "MaxPool1d": (lambda: nn.MaxPool1d(2), SIGNAL),
    "MaxPool2d": (lambda: nn.MaxPool2d(3, 2, 1), IMAGE),
    "MaxPool3d": (lambda: nn.MaxPool3d(2), VOLUME),
    "MaxUnpool1d": (lambda: nn.MaxUnpool1d(2), SIGNAL, apart(SIGNAL)),
    "MaxUnpool2d": (lambda: nn.MaxUnpool2d(2), IMAGE, apart(IMAGE)),
    "MaxUnpool3d": (lambda: nn.MaxUnpool3d(2), VOLUME, apart(VOLUME)),
    "Mish": (nn.Mish, ROW),
    "ModuleDict": None,
    "ModuleList": None,
    "MultiheadAttention": (lambda: nn.MultiheadAttention(4, 2, 0.3), STEPS, STEPS, STEPS),
    "NLLLoss": (lambda: nn.NLLLoss(ignore_index=2), ROW, CLASSES),
    "PReLU": (nn.PReLU, ROW),
    "ParameterDict": None,
    "ParameterList": None,
    "PixelShuffle": (lambda: nn.PixelShuffle(2), IMAGE),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), IMAGE),
    "RMSNorm": (lambda: nn.RMSNorm(3), ROW),
    "RNN": (lambda: nn.RNN(4, 3, nonlinearity="relu"), STEPS),
    "RNNCell": (lambda: nn.RNNCell(3, 2), ROW),
    "RReLU": (nn.RReLU, ROW),
    "ReLU": (nn.ReLU, ROW),
    "ReLU6": (nn.ReLU6, ROW),
    "SELU": (nn.SELU, ROW),
    "Sequential": (lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh()), ROW),
    "SiLU": (nn.SiLU, ROW),
    "Sigmoid": (nn.Sigmoid, ROW),
    "SmoothL1Loss": (nn.SmoothL1Loss, ROW, CHANCES),
    "Softmax": (lambda: nn.Softmax(0), ROW),
    "Softplus": (nn.Softplus, ROW),
    "Softsign": (nn.Softsign, ROW),
    "Tanh": (nn.Tanh, ROW),
    "Tanhshrink": (nn.Tanhshrink, ROW),
    "Transformer": (lambda: nn.Transformer(4, 2, 1, 1, 8), STEPS, STEPS),
    "TransformerDecoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8), 2), STEPS, STEPS,
    ),
    "TransformerDecoderLayer": (lambda: nn.TransformerDecoderLayer(4, 2, 8), STEPS, STEPS),
    "TransformerEncoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2), STEPS,
    ),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(4, 2, 8), STEPS),
    "Unflatten": (lambda: nn.Unflatten(1, (1, 3)), ROW),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(2), VOLUME),
    "Bilinear": (lambda: nn.Bilinear(3, 3, 2), ROW, CHANCES),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(2), IMAGE),
    "CircularPad1d": (lambda: nn.CircularPad1d(1), SIGNAL),
    "CircularPad2d": (lambda: nn.CircularPad2d(1), IMAGE),
    "CircularPad3d": (lambda: nn.CircularPad3d(1), VOLUME),
    "ConstantPad1d": (lambda: nn.ConstantPad1d(1, 2.0), SIGNAL),
    "ConstantPad2d": (lambda: nn.ConstantPad2d(1, 2.0), IMAGE),
    "ConstantPad3d": (lambda: nn.ConstantPad3d(1, 2.0), VOLUME),
    "CTCLoss": (
        nn.CTCLoss, np.log(np.full((5, 2, 4), 0.25)), np.array([[1, 2], [3, 1]]),
        np.array([5, 4]), np.array([2, 1]),
    ),
    "CosineEmbeddingLoss": (nn.CosineEmbeddingLoss, ROW, CHANCES, SIGNS),
    "Fold": (lambda: nn.Fold((2, 3), 2), PATCHES),
    "GaussianNLLLoss": (nn.GaussianNLLLoss, ROW, CHANCES, CHANCES + 1),
    "Hardshrink": (nn.Hardshrink, ROW),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss, CHANCES, SIGNS[:, None].repeat(3, 1)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(4, affine=True), SIGNAL),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, track_running_stats=True), IMAGE),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(2), VOLUME),
    "LPPool1d": (lambda: nn.LPPool1d(2, 2), abs(SIGNAL) + 1),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), abs(IMAGE) + 1),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), IMAGE),
    "MarginRankingLoss": (nn.MarginRankingLoss, ROW[:, 0], CHANCES[:, 0], SIGNS),
    "MultiLabelMarginLoss": (nn.MultiLabelMarginLoss, ROW, PLACES),
    "MultiLabelSoftMarginLoss": (nn.MultiLabelSoftMarginLoss, ROW, CHANCES),
    "MultiMarginLoss": (nn.MultiMarginLoss, ROW, CLASSES),
    "PairwiseDistance": (nn.PairwiseDistance, ROW, CHANCES),
    "PoissonNLLLoss": (nn.PoissonNLLLoss, ROW, CHANCES),
    "ReflectionPad1d": (lambda: nn.ReflectionPad1d(1), SIGNAL),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(1), IMAGE),
    "ReflectionPad3d": (lambda: nn.ReflectionPad3d(1), VOLUME),
    "ReplicationPad1d": (lambda: nn.ReplicationPad1d(1), SIGNAL),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d(1), IMAGE),
    "ReplicationPad3d": (lambda: nn.ReplicationPad3d(1), VOLUME),
    "SoftMarginLoss": (nn.SoftMarginLoss, ROW, CHANCES),
    "Softmax2d": (nn.Softmax2d, IMAGE),
    "Softmin": (lambda: nn.Softmin(1), ROW),
    "Softshrink": (nn.Softshrink, ROW),
    "Threshold": (lambda: nn.Threshold(0.1, 2.0), ROW),
    "TripletMarginLoss": (nn.TripletMarginLoss, ROW, CHANCES, -CHANCES),
    "TripletMarginWithDistanceLoss": (nn.TripletMarginWithDistanceLoss, ROW, CHANCES, -CHANCES),
    "Unfold": (lambda: nn.Unfold(2), IMAGE),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bicubic"), IMAGE),
    "UpsamplingBilinear2d": (lambda: nn.UpsamplingBilinear2d(scale_factor=2), IMAGE),
    "UpsamplingNearest2d": (lambda: nn.UpsamplingNearest2d(scale_factor=2), IMAGE),
    "ZeroPad1d": (lambda: nn.ZeroPad1d(1), SIGNAL),
    "ZeroPad2d": (lambda: nn.ZeroPad2d(1), IMAGE),
    "ZeroPad3d": (lambda: nn.ZeroPad3d(1), VOLUME),
    "DataParallel": (lambda: nn.DataParallel(nn.Linear(3, 2)), ROW),
    "FractionalMaxPool2d": (lambda: nn.FractionalMaxPool2d(2, output_size=2), IMAGE),
    "FractionalMaxPool3d": (lambda: nn.FractionalMaxPool3d(2, output_size=2), VOLUME),
    "LPPool3d": (lambda: nn.LPPool3d(2, 2), abs(VOLUME) + 1),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(4), IMAGE),
}  # fmt: skip


def flat(value):
    if isinstance(value, (tuple, list)):
        return [part for item in value for part in flat(item)]
    return [value]


def stepped(make, arguments, device):
    """Outputs, gradients and buffers of one step."""
    ag.manual_seed(0)
    layer = make().double().to(device)
    given = [ag.tensor(a, device=device, requires_grad=a.dtype.kind == "f") for a in arguments]
    outputs = flat(layer(*given))
    total = sum((out * out).sum() for out in outputs if out.requires_grad)
    total.backward()
    found = [*outputs, *(x.grad for x in given), *(p.grad for p in layer.parameters())]
    found += layer.buffers()
    assert {x.device for x in found if x is not None} == {ag.device(device)}
    return [None if x is None else x.detach().cpu().numpy() for x in found]


def equal(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", [name for name, case in LAYERS.items() if case])
def test_layers(name, accelerator):
    make, *arguments = LAYERS[name]
    equal(stepped(make, arguments, accelerator), stepped(make, arguments, "cpu"))


#: The host has to know how long bags and sequences are, and which classes are rare.
WAITING = {"AdaptiveLogSoftmaxWithLoss", "CTCLoss", "EmbeddingBag"}


@pytest.mark.asyncio
@pytest.mark.parametrize("name", [n for n, case in LAYERS.items() if case and n not in WAITING])
async def test_layers_are_launched_without_waiting(name):
    """Nobody looks at what is on the device: that would hold the event loop until it is there."""
    with simulate(devices=1, latency=1.0) as machine:
        make, *arguments = LAYERS[name]
        layer = make().double().to("sim:0")
        given = [ag.tensor(a, device="sim:0", requires_grad=a.dtype.kind == "f") for a in arguments]
        await ag.accelerator.synchronize_async()
        before = machine.blocked
        outputs = flat(layer(*given))
        await sum((out * out).sum() for out in outputs if out.requires_grad).backward()
        assert machine.blocked == before


def test_no_layer_is_forgotten():
    found = {
        name
        for name, kind in inspect.getmembers(nn, inspect.isclass)
        if issubclass(kind, nn.Module)
        and kind is not nn.Module
        # These become the others.
        and not name.startswith("Lazy")
    }
    assert found == LAYERS.keys()


#: An optimiser of every class, in some of its forms.
OPTIMISERS = {
    "SGD": lambda p: ag.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "SGD plain": lambda p: ag.optim.SGD(p, 0.1, maximize=True),
    "Adam": lambda p: ag.optim.Adam(p, 0.1, amsgrad=True, weight_decay=0.01),
    "AdamW": lambda p: ag.optim.AdamW(p, 0.1),
    "Adagrad": lambda p: ag.optim.Adagrad(p, 0.1, lr_decay=0.1, initial_accumulator_value=0.1),
    "RMSprop": lambda p: ag.optim.RMSprop(p, 0.1, momentum=0.5, centered=True),
    "Adadelta": lambda p: ag.optim.Adadelta(p, 0.5),
    "Adamax": lambda p: ag.optim.Adamax(p, 0.1),
    "ASGD": lambda p: ag.optim.ASGD(p, 0.1),
    "NAdam": lambda p: ag.optim.NAdam(p, 0.1),
    "RAdam": lambda p: ag.optim.RAdam(p, 0.1),
    "Rprop": lambda p: ag.optim.Rprop(p, 0.1),
    "Adafactor": lambda p: ag.optim.Adafactor(p, 0.1),
    "Muon": lambda p: ag.optim.Muon([x for x in p if x.dim() == 2], 0.1),
}


def model():
    ag.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 3)).double()


def loss_of(layers, device):
    x, target = ag.tensor(ROW, device=device), ag.tensor(CLASSES, device=device)
    return F.cross_entropy(layers(x), target)


def trained(make, device):
    layers = model().to(device)
    optimiser = make(layers.parameters())
    scheduler = ag.optim.lr_scheduler.StepLR(optimiser, 2)
    norms = []
    for _ in range(4):
        optimiser.zero_grad()
        loss_of(layers, device).backward()
        norms.append(nn.utils.clip_grad_norm_(layers.parameters(), 0.5))
        optimiser.step()
        scheduler.step()
    return layers, optimiser, norms


def values(tensors):
    return [x.detach().cpu().numpy() for x in tensors]


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers(name, accelerator):
    layers, optimiser, norms = trained(OPTIMISERS[name], accelerator)
    others, _, known = trained(OPTIMISERS[name], "cpu")
    equal(values([*layers.parameters(), *norms]), values([*others.parameters(), *known]))
    states = [v for s in optimiser.state.values() for v in s.values() if isinstance(v, ag.Tensor)]
    assert {v.device for v in states if v.ndim} <= {ag.device(accelerator)}


@pytest.mark.asyncio
@pytest.mark.parametrize("name", OPTIMISERS)
async def test_steps_are_launched_without_waiting(name):
    with simulate(devices=1, latency=1.0) as machine:
        layers = model().to("sim:0")
        optimiser = OPTIMISERS[name](layers.parameters())
        await ag.accelerator.synchronize_async()
        before = machine.blocked
        for _ in range(2):
            optimiser.zero_grad()
            await loss_of(layers, "sim:0").backward()
            nn.utils.clip_grad_norm_(layers.parameters(), 0.5)
            nn.utils.clip_grad_value_(layers.parameters(), 0.5)
            await optimiser.step_async()
        assert machine.blocked == before


def test_no_optimiser_is_forgotten():
    kinds = {name.split()[0] for name in OPTIMISERS} | {"Optimizer", "SparseAdam", "LBFGS"}
    assert {name for name in dir(ag.optim) if name[0].isupper()} == kinds


def test_gradients_of_looked_up_rows_are_dense_on_devices(accelerator):
    found = []
    for place in (accelerator, "cpu"):
        ag.manual_seed(0)
        table = nn.Embedding(5, 2, sparse=True).to(place)
        (table(ag.tensor([1, 3, 1], device=place)) ** 2).sum().backward()
        found.append(values([table.weight.grad.to_dense()]))
    equal(*found)


def test_a_checkpoint_moves_between_devices(accelerator):
    layers, optimiser, _ = trained(OPTIMISERS["Adam"], accelerator)
    file = io.BytesIO()
    ag.save({"model": layers.state_dict(), "optimiser": optimiser.state_dict()}, file)
    for place in (accelerator, "cpu"):
        for mapped in (
            place,
            ag.device(place),
            {accelerator: place},
            lambda s, _, p=place: s.to(p),
        ):
            file.seek(0)
            found = ag.load(file, map_location=mapped)
            assert {str(v.device) for v in found["model"].values()} == {place}
            equal(values(found["model"].values()), values(layers.parameters()))
    file.seek(0)
    assert {str(v.device) for v in ag.load(file)["model"].values()} == {"cpu"}
    with pytest.raises(RuntimeError):
        ag.load(file, map_location="nowhere")
    others = model()
    others.load_state_dict(layers.state_dict())
    again = OPTIMISERS["Adam"](others.parameters())
    again.load_state_dict(optimiser.state_dict())
    for one, place in ((layers, accelerator), (others, "cpu")):
        one.zero_grad()
        loss_of(one, place).backward()
    optimiser.step()
    again.step()
    equal(values(layers.parameters()), values(others.parameters()))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointed_parts(accelerator, use_reentrant):
    def block(x):
        return F.dropout(x, 0.5).tanh() * x.sin()

    found = []
    for place in (accelerator, "cpu"):
        for again in (True, False):
            ag.manual_seed(0)
            x = ag.tensor(ROW, device=place, requires_grad=True)
            y = checkpoint(block, x, use_reentrant=use_reentrant) if again else block(x)
            layers = model().to(place)
            y = checkpoint_sequential(layers, 2, y, use_reentrant=use_reentrant)
            y.sum().backward()
            found.append(values([x.grad, *(p.grad for p in layers.parameters())]))
    for other in found[1:]:
        equal(found[0], other)


def square(x):
    return (x.sin() * x).sum()


TRANSFORMS = {
    "grad": lambda x: ag.func.grad(square)(x),
    "vmap": lambda x: ag.vmap(lambda row: row.softmax(0) * row[0])(x),
    "grads of each": lambda x: ag.vmap(ag.func.grad(square))(x),
    "jacrev": lambda x: ag.func.jacrev(lambda x: x.exp() * x.sum())(x),
    "jacfwd": lambda x: ag.func.jacfwd(lambda x: x.exp() * x.sum())(x),
    "hessian": lambda x: ag.func.hessian(square)(x),
    "jvp": lambda x: ag.func.jvp(square, (x,), (x.cos(),))[1],
    "vjp": lambda x: ag.func.vjp(lambda x: x.cumsum(0), x)[1](x)[0],
    "batched": lambda x: ag.autograd.functional.jacobian(
        lambda x: x.exp() @ x.T, x, vectorize=True
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name, accelerator):
    found, expected = (TRANSFORMS[name](ag.tensor(ROW, device=p)) for p in (accelerator, "cpu"))
    assert found.device is ag.device(accelerator)
    equal(values([found]), values([expected]))


def test_functional_call(accelerator):
    layers = model()
    there = {name: p.detach().to(accelerator) for name, p in layers.named_parameters()}

    def loss(parameters, x):
        return ag.func.functional_call(layers, parameters, (x,)).square().sum()

    x = ag.tensor(ROW, device=accelerator)
    found = ag.vmap(ag.func.grad(loss), in_dims=(None, 0))(there, x)
    expected = ag.vmap(ag.func.grad(loss), in_dims=(None, 0))(
        dict(layers.named_parameters()), x.cpu()
    )
    equal(values(found.values()), values(expected.values()))


def test_tensors_and_modules_are_copied_and_pickled(accelerator):
    x = ag.tensor(ROW, device=accelerator, requires_grad=True)
    layers = model().to(accelerator)
    for again in (copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
        y, others = again(x), again(layers)
        assert y.device is x.device
        assert y.requires_grad
        equal(values([y, *others.parameters()]), values([x, *layers.parameters()]))
        assert {p.device for p in others.parameters()} == {x.device}


def test_numbers_of_the_host_go_where_the_others_are(accelerator):
    """PyTorch's rule: tensors without dimensions, of the CPU alone."""
    x = ag.tensor(ROW, device=accelerator, requires_grad=True)
    number = ag.tensor(2.0, dtype=ag.float64, requires_grad=True)
    for y in (x * number, number * x, ag.where(x > 0, x, number), x / number, number - x):
        assert y.device is x.device
    (x * number).sum().backward()
    assert number.grad.device is ag.device("cpu")
    np.testing.assert_allclose(number.grad.item(), ROW.sum())
    for wrong in (lambda: x * ag.ones(3), lambda: ag.ones(3) * x):
        with pytest.raises(RuntimeError, match="same device"):
            wrong()


@pytest.mark.parametrize("draw", [ag.rand_like, ag.randn_like, lambda x: ag.randint_like(x, 9)])
def test_random_numbers_like_examples_of_a_batch_are_drawn_where_they_are(accelerator, draw):
    there = ag.ones(3, 2, device=accelerator)
    drawn = ag.vmap(draw, randomness="different")(there)
    assert (drawn.device, drawn.shape) == (there.device, there.shape)


def test_random_numbers_are_drawn_into_tensors_anywhere(accelerator):
    for draw in ("normal_", "uniform_", "bernoulli_", "exponential_", "random_"):
        found = []
        for place in (accelerator, "cpu"):
            ag.manual_seed(0)
            found.append(getattr(ag.zeros(5, device=place), draw)())
        equal(values(found[:1]), values(found[1:]))


def test_where_memory_lies(accelerator):
    x = ag.zeros(4, 3, device=accelerator)
    y = x[1:, 1]
    assert y.storage_offset() == 4
    assert y.data_ptr() == x.data_ptr() + 16
    assert y.stride() == (3,)


def test_numbers_are_taken_from_tensors_of_any_stream(accelerator):
    side = ag.Stream(device=accelerator)
    with side:
        number = ag.ones((), device=accelerator) * 2
        x = ag.full((2,), number, device=accelerator)
        assert ag.tensor([number, 1.0]).tolist() == [2.0, 1.0]
        assert x.tolist() == [2.0, 2.0]
        assert number.item() == float(number) == 2.0
