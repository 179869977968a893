"""Lazy modules beside PyTorch's."""

import copy
import pickle

import numpy as np
import pytest
from module_parity import X

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning"),
]

LAZY = {
    "LazyLinear": ((2,), {}, (4, 3)),
    "LazyLinear-no-bias": ((2,), {"bias": False}, (3,)),
    "LazyConv1d": ((4, 2), {}, (2, 3, 5)),
    "LazyConv2d": ((4, 2), {"groups": 2, "padding": 1}, (2, 6, 5, 5)),
    "LazyConv2d-unbatched": ((4, 2), {"bias": False}, (6, 5, 5)),
    "LazyConv3d": ((4, 2), {}, (2, 3, 4, 4, 4)),
    "LazyConvTranspose1d": ((4, 2), {}, (2, 3, 5)),
    "LazyConvTranspose2d": ((4, 2), {"stride": 2}, (2, 3, 5, 5)),
    "LazyConvTranspose3d": ((4, 2), {}, (2, 3, 4, 4, 4)),
    "LazyBatchNorm1d": ((), {}, (4, 3)),
    "LazyBatchNorm2d": ((), {"affine": False}, (2, 3, 4, 4)),
    "LazyBatchNorm3d": ((), {"track_running_stats": False}, (2, 3, 4, 4, 4)),
    "LazyInstanceNorm1d": ((), {"affine": True}, (2, 3, 4)),
    "LazyInstanceNorm2d": ((), {"track_running_stats": True}, (2, 3, 4, 4)),
    "LazyInstanceNorm3d": ((), {}, (2, 3, 4, 4, 4)),
}


@pytest.mark.parametrize("name", LAZY)
def test_the_first_input_makes_the_parameters(name):
    args, kwargs, shape = LAZY[name]
    x = X(shape)
    made = {}
    for library in (ag, torch):
        layer = getattr(library.nn, name.partition("-")[0])(*args, **kwargs)
        words = repr(layer)
        assert layer.has_uninitialized_params() == bool([*layer.parameters(), *layer.buffers()])
        layer.double()(library.from_numpy(x.copy()))
        state = {key: tuple(value.shape) for key, value in layer.state_dict().items()}
        made[library] = layer
        made[library, "seen"] = words, repr(layer), type(layer).__name__, state
    assert made[ag, "seen"] == made[torch, "seen"]
    state = {key: ag.tensor(value.numpy()) for key, value in made[torch].state_dict().items()}
    made[ag].load_state_dict(state)
    mine, other = (made[library](library.from_numpy(x.copy())) for library in (ag, torch))
    np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), atol=1e-12)


def test_parameters_stay_the_same_objects():
    """An optimiser that was given them goes on with them."""
    layer = ag.nn.LazyLinear(2)
    before = layer.weight
    assert repr(before) == "<UninitializedParameter>"
    with pytest.raises(RuntimeError, match="uninitialized"):
        before.shape  # noqa: B018
    for use in (ag.nn.Parameter.numel, ag.sum, len, lambda p: p + 1, lambda p: 2 * p, ag.clone):
        with pytest.raises((ValueError, RuntimeError), match="uninitialized parameter"):
            use(before)
    optimizer = ag.optim.SGD(layer.parameters(), lr=0.5)
    layer(ag.ones(1, 3)).sum().backward()
    assert layer.weight is before
    assert type(before) is ag.nn.Parameter
    kept = before.detach().clone()
    optimizer.step()
    assert (before == kept - 0.5).all()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_lazy_too(duplicate):
    twin = duplicate(ag.nn.Sequential(ag.nn.LazyLinear(2), ag.nn.LazyBatchNorm1d()))
    assert twin[0].has_uninitialized_params()
    assert twin.double()(ag.ones(4, 3, dtype=ag.float64)).shape == (4, 2)
    assert twin[0].weight.dtype == ag.float64
    assert duplicate(twin)[0].weight.shape == (2, 3)


def test_states_are_loaded_before_the_first_input():
    full, lazy = ag.nn.Linear(3, 2), ag.nn.LazyLinear(2)
    assert list(map(repr, lazy.state_dict().values())) == ["<UninitializedParameter>"] * 2
    lazy.load_state_dict(lazy.state_dict())
    with pytest.raises(RuntimeError, match=r"size mismatch for weight: .* shape None from"):
        full.load_state_dict(lazy.state_dict())
    lazy.load_state_dict(full.state_dict())
    assert not lazy.has_uninitialized_params()
    x = ag.ones(1, 3)
    assert (lazy(x) == full(x)).all()
    assert type(lazy) is ag.nn.Linear
    assert lazy.in_features == 3


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "shape"),
    [
        ("LazyConv2d", (4, 2), {}, (3, 3)),
        ("LazyConv2d", (4, 2), {"groups": 2}, (1, 3, 4, 4)),
        ("LazyBatchNorm2d", (), {}, (3, 3)),
        ("LazyLinear", (), {}, (3, 3)),
        ("LazyConv2d", (4, 2), {"colour": 3}, (3, 3)),
    ],
)
def test_what_does_not_fit_is_refused(name, args, kwargs, shape):
    errors = []
    for library in (torch, ag):
        with pytest.raises((RuntimeError, ValueError, TypeError)) as caught:
            getattr(library.nn, name)(*args, **kwargs)(library.ones(*shape))
        errors.append(caught.type)
    assert errors[0] is errors[1]


def test_the_first_call_takes_all_arguments_of_forward():
    layer = ag.nn.LazyConvTranspose1d(3, 2)
    assert layer(ag.ones(1, 2, 5), output_size=[6]).shape == (1, 3, 6)


@pytest.mark.parametrize(
    ("kind", "given"), [("LazyLinear", [2]), ("LazyConv1d", [2, 1]), ("LazyBatchNorm1d", [])]
)
def test_parameters_without_a_shape_are_not_redrawn(kind, given):
    """As in PyTorch: programs that reset all modules of a model may do so before its first call."""
    layer = getattr(ag.nn, kind)(*given)
    layer.reset_parameters()
    assert layer.has_uninitialized_params()
    layer(ag.ones(2, 3, 4))
    layer.reset_parameters()
