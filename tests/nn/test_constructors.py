"""What constructors take, and what modules and optimisers say of themselves, is PyTorch's."""

import inspect

import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

_PLACES = {
    "nn": (torch.nn, ag.nn),
    "init": (torch.nn.init, ag.nn.init),
    "optim": (torch.optim, ag.optim),
    "lr_scheduler": (torch.optim.lr_scheduler, ag.optim.lr_scheduler),
    "utils": (torch.nn.utils, ag.nn.utils),
    "rnn": (torch.nn.utils.rnn, ag.nn.utils.rnn),
    "functional": (torch.nn.functional, ag.nn.functional),
}
#: Functions that draw numbers take a generator, too.
_MORE = {"generator"}
#: The types of options of modules.
_PLAIN = (bool, int, float, str, tuple, list, type(None))
#: PyTorch chooses between two functions here, and hides the arguments.
_HIDDEN = {"args", "kwargs"}


def _known(place):
    theirs, ours = _PLACES[place]
    for name in dir(theirs):
        found = getattr(ours, name, None)
        public = not name.startswith("_") and found is not None
        if public and getattr(found, "__module__", "").startswith("asyncgrad."):
            yield name


def _arguments(function):
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return None
    return [(k, repr(p.default).partition(" at ")[0], p.kind.name) for k, p in parameters.items()]


@pytest.mark.parametrize("place", _PLACES)
def test_arguments_are_pytorchs(place):
    """Names, order, defaults, and what has to be passed by name."""
    names = list(_known(place))
    assert names
    for name in names:
        expected, found = (_arguments(getattr(library, name)) for library in _PLACES[place])
        if expected is None or name == "PackedSequence" or {k for k, *_ in expected} & _HIDDEN:
            continue
        more = _MORE - {k for k, *_ in expected}
        if place == "functional":
            more |= {"out"} - {k for k, *_ in expected}
        assert [a for a in found if a[0] not in more] == expected, name


MODULES = [
    ("CELU", (2.0,), {"inplace": True}),
    ("GLU", (), {}),
    ("GroupNorm", (2, 4), {}),
    ("Hardtanh", (), {"inplace": True}),
    ("Hardswish", (), {}),
    ("Mish", (), {}),
    ("PReLU", (3,), {}),
    ("PixelShuffle", (2,), {}),
    ("ReLU6", (True,), {}),
    ("SELU", (), {}),
    ("Linear", (3, 4), {}),
    ("Linear", (3, 4), {"bias": False}),
    ("Conv1d", (3, 4, 3), {}),
    ("Conv2d", (2, 4, 3), {"stride": 2, "padding": 1, "groups": 2, "padding_mode": "reflect"}),
    ("ConvTranspose2d", (2, 4, 3), {"output_padding": 1, "stride": 2}),
    ("BatchNorm1d", (3,), {}),
    ("BatchNorm2d", (3,), {"affine": False, "track_running_stats": False}),
    ("SyncBatchNorm", (3,), {}),
    ("LayerNorm", ((2, 3),), {"elementwise_affine": False}),
    ("RMSNorm", (3,), {}),
    ("Embedding", (3, 4), {"padding_idx": 1, "max_norm": 2.0, "sparse": True}),
    ("Dropout2d", (0.2,), {}),
    ("MaxPool2d", (2,), {}),
    ("AvgPool2d", (2,), {}),
    ("AdaptiveAvgPool2d", (1,), {}),
    ("LSTM", (3, 4, 2), {"batch_first": True, "bidirectional": True, "dropout": 0.1}),
    ("LSTM", (3, 4), {"proj_size": 2}),
    ("GRU", (3, 4), {"bias": False}),
    ("RNN", (3, 4), {"nonlinearity": "relu"}),
    ("LSTMCell", (3, 4), {}),
    ("MultiheadAttention", (4, 2), {"kdim": 3, "vdim": 5, "bias": False, "add_bias_kv": True}),
    ("TransformerEncoderLayer", (4, 2), {"dim_feedforward": 8}),
    ("TransformerEncoderLayer", (4, 2), {"activation": "gelu"}),
    ("TransformerEncoderLayer", (4, 2), {"activation": len}),
    ("TransformerDecoderLayer", (4, 2), {"norm_first": True, "activation": "gelu"}),
    ("Transformer", (4, 2, 1, 1, 8), {}),
    ("CrossEntropyLoss", (None, None, 3), {"label_smoothing": 0.1}),
]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(("name", "args", "kwargs"), MODULES)
def test_modules_look_and_are_built_like_pytorchs(name, args, kwargs):
    theirs = getattr(torch.nn, name)(*args, **kwargs)
    ours = getattr(ag.nn, name)(*args, **kwargs)
    assert repr(ours) == repr(theirs)
    assert [n for n, _ in ours.named_modules()] == [n for n, _ in theirs.named_modules()]
    shapes = [{k: tuple(v.shape) for k, v in m.state_dict().items()} for m in (theirs, ours)]
    assert shapes[0] == shapes[1]
    assert list(shapes[0]) == list(shapes[1])
    for (path, its), mine in zip(theirs.named_modules(), ours.modules(), strict=True):
        # What holds no tensors, modules or hooks, such as options and what follows from them.
        plain = {
            key: value
            for key, value in vars(its).items()
            if not key.startswith("_") and isinstance(value, _PLAIN)
        }
        found = {key: getattr(mine, key, "missing") for key in plain}
        assert found == plain, path


@pytest.mark.filterwarnings("ignore:size_average and reduce")
@pytest.mark.parametrize("name", ["MSELoss", "L1Loss", "KLDivLoss", "BCELoss", "CrossEntropyLoss"])
@pytest.mark.parametrize("old", [{"size_average": False}, {"reduce": False}, {"reduce": True}])
def test_the_old_arguments_of_losses_mean_what_they_meant(name, old):
    assert getattr(ag.nn, name)(**old).reduction == getattr(torch.nn, name)(**old).reduction


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_options_of_optimisers_that_exclude_one_another_are_refused(name):
    for options in ({"fused": True, "foreach": True}, {"fused": True, "differentiable": True}):
        for library in (torch, ag):
            weights = [library.ones(2, requires_grad=True)]
            with pytest.raises(RuntimeError, match="fused"):
                getattr(library.optim, name)(weights, **options)


def test_modules_are_listed_as_often_as_they_are_there():
    for library in (torch, ag):
        one = library.nn.Linear(1, 1)
        model = library.nn.Sequential(one, one)
        assert len(list(model.modules())) == 2
        assert len(list(model.modules(remove_duplicate=False))) == 3
