"""PyTorch's optimisers beside ours, from the same parameters and gradients.

The cases are those of PyTorch's own database of optimisers, and some with more options.
"""

import copy
import math
import re
import types
import warnings

import numpy as np
import oracle
import pytest
import torch_samples

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

with torch_samples.importing():
    from torch.testing._internal.common_optimizers import optim_db

INFOS = {info.optim_cls.__name__: info for info in optim_db}
#: Its parameters have sparse gradients: see `tests/ops/test_sparse.py`.
DENSE = [name for name in INFOS if name != "SparseAdam"]
CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    ("SGD", {"lr": 0.01, "maximize": True, "momentum": 0.5, "weight_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "amsgrad": True, "maximize": True, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.5, "amsgrad": True}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.02, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1, "momentum": 0.9}),
    ("RMSprop", {"lr": 0.02, "centered": True, "maximize": True}),
    ("RMSprop", {"lr": 0.02, "centered": True, "momentum": 0.5}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.5, "lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-3}),
    ("Adagrad", {"lr": 0.5, "initial_accumulator_value": 0.5, "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.7, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "momentum_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {}),
    ("RAdam", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.1, "etas": (0.4, 1.5), "step_sizes": (1e-2, 0.3), "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "t0": 10.0, "weight_decay": 0.1}),
    ("ASGD", {"lr": 0.01, "alpha": 0.5, "t0": 3.0, "maximize": True}),
    ("Adafactor", {"lr": 0.5, "eps": (0.1, 0.5), "beta2_decay": -0.3, "d": 1.1}),
    ("Muon", {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "eps": 10.0}),
]
# The database for CUDA has all options; what they ask of CUDA alone is without effect.
CASES += [
    (name, {key: value for key, value in case.kwargs.items() if key != "capturable"})
    for name in DENSE
    for case in INFOS[name].optim_inputs_func("cuda")
]
IDS = [f"{name}-{'-'.join(options) or 'defaults'}" for name, options in CASES]


def start(name, dtype="float64"):
    """Equal parameters of both libraries, of a shape that the optimiser takes."""
    random = np.random.default_rng(0)
    shapes = ((3, 4), (4, 2)) if name == "Muon" else ((2, 3, 4), (5,), ())
    arrays = [random.standard_normal(shape).astype(dtype) for shape in shapes]
    if dtype.startswith("complex"):
        arrays = [a + 1j * random.standard_normal(a.shape).astype(a.real.dtype) for a in arrays]
    ours = [ag.tensor(array, requires_grad=True) for array in arrays]
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    return ours, theirs


def dtypes(name):
    """What its parameters may be; LBFGS stops at other points where roundings differ much."""
    found = ["float64"] if name == "LBFGS" else ["float64", "float32"]
    return [*found, "complex128"] if INFOS[name].supports_complex else found


def objective(parameters, step):
    """Something whose gradient depends on parameters and step, and is no multiple of either."""
    total = 0.0
    for p in parameters:
        squares, sums = p * p.conj(), p * (1.0 + step % 3)
        if p.is_complex():
            squares, sums = squares.real, sums.real + sums.imag
        total = total + (squares.sum() - sums.sum()) * (step % 5 + 0.5)
    return total


def train(optimizer, parameters, steps, start=0):
    for step in range(start, start + steps):

        def closure(step=step):
            optimizer.zero_grad()
            loss = objective(parameters, step)
            loss.backward()
            return loss.detach()

        optimizer.step(closure)


def assert_same(mine, other, tolerance=1e-12):
    """The same numbers, in the same containers; tensors of the same dtype and shape."""
    if isinstance(other, dict):
        # Where PyTorch's LBFGS writes what it needs for a moment.
        keys = [key for key in mine if key != "al"]
        assert {*keys} == other.keys() - {"al"}
        mine, other = [mine[key] for key in keys], [other[key] for key in keys]
    if isinstance(other, (list, tuple)):
        for a, b in zip(mine, other, strict=True):
            assert_same(a, b, tolerance)
        return
    if isinstance(mine, ag.Tensor):
        assert str(other.dtype) == str(mine.dtype).replace("asyncgrad", "torch")
        mine, other = mine.detach().numpy(), other.detach().numpy()
    elif other is None or isinstance(other, str):
        assert mine == other
        return
    other = np.asarray(other)
    scale = max(1.0, float(np.abs(other).max(initial=0.0)))
    np.testing.assert_allclose(mine, other, rtol=0, atol=tolerance * scale)


def to_ours(value, known=None):
    """What is made of PyTorch's tensors, with ours; each of them becomes one."""
    known = {} if known is None else known
    if isinstance(value, torch.Tensor):
        if value not in known:
            made = known[value] = ag.tensor(value.detach().numpy())
            made.requires_grad_(value.requires_grad)
            made.grad = to_ours(value.grad)
        return known[value]
    if isinstance(value, dict):
        return {key: to_ours(item, known) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(to_ours(item, known) for item in value)
    return value


def to_theirs(value):
    """A state dict of ours with PyTorch's tensors."""
    if isinstance(value, ag.Tensor):
        return torch.tensor(value.detach().numpy())
    if isinstance(value, dict):
        return {key: to_theirs(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(to_theirs(item) for item in value)
    return value


@pytest.fixture(autouse=True)
def exactly(monkeypatch):
    """PyTorch's Muon computes in bfloat16, where no two ways to sum agree."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_steps_are_pytorchs_and_states_move_both_ways(name, options):
    """After some steps each library goes on with the other's state."""
    # PyTorch computes with tensors among the options in their own dtype, float32.
    rough = any(isinstance(value, (torch.Tensor, tuple)) for value in options.values())
    for dtype in dtypes(name):
        # The same kernels in another dtype.
        steps = 2 if name == "LBFGS" else 10 if dtype == "float64" else 3
        tolerance = 1e-4 if dtype == "float32" else 1e-6 if rough or name == "LBFGS" else 1e-11
        ours, theirs = start(name, dtype)
        mine = getattr(ag.optim, name)(ours, **to_ours(options))
        other = getattr(torch.optim, name)(theirs, **copy.deepcopy(options))
        train(mine, ours, steps)
        train(other, theirs, steps)
        assert_same(ours, theirs, tolerance)
        state, known = mine.state_dict(), other.state_dict()
        assert_same(state["state"], known["state"], tolerance)
        for group, expected in zip(state["param_groups"], known["param_groups"], strict=True):
            assert group.keys() <= expected.keys()
            assert_same(list(group.values()), [expected[key] for key in group])
        mine, other = getattr(ag.optim, name)(ours), getattr(torch.optim, name)(theirs)
        mine.load_state_dict(to_ours(known))
        other.load_state_dict(to_theirs(state))
        train(mine, ours, steps, start=steps)
        train(other, theirs, steps, start=steps)
        assert_same(ours, theirs, tolerance)
        assert_same(mine.state_dict()["state"], other.state_dict()["state"], tolerance)


def test_steps_of_muon_are_near_those_that_pytorch_computes_in_bfloat16(monkeypatch):
    monkeypatch.undo()
    ours, theirs = start("Muon", "float32")
    for library, parameters in ((ag, ours), (torch, theirs)):
        train(library.optim.Muon(parameters, lr=1.0, weight_decay=0.0), parameters, 1)
    assert_same(ours, theirs, 0.1)


@pytest.mark.parametrize("name", DENSE)
def test_how_pytorch_computes_a_step_changes_nothing(name):
    info = INFOS[name]
    flags = {*info.supported_impls, *(["capturable"] if info.has_capturable_arg else [])}
    found = []
    for flag in [*sorted(flags - {"differentiable"}), None]:
        parameters, _ = start(name)
        optimizer = getattr(ag.optim, name)(parameters, **({flag: True} if flag else {}))
        train(optimizer, parameters, 3)
        found.append([parameter.tolist() for parameter in parameters])
    assert all(values == found[-1] for values in found)


@pytest.mark.parametrize("name", DENSE)
def test_pytorchs_choice_of_schedules_works_with_each_optimiser(name):
    for makers in INFOS[name].scheduler_inputs:
        rates = []
        for library, parameters in zip((ag, torch), start(name), strict=True):
            optimizer = getattr(library.optim, name)(parameters, lr=0.1)
            named = {"__builtins__": __builtins__, **vars(library.optim.lr_scheduler)}
            schedules = [types.FunctionType(make.__code__, named)(optimizer) for make in makers]
            rates.append([])
            for step in range(12):
                train(optimizer, parameters, 1, step)
                for schedule in schedules:
                    takes_loss = type(schedule).__name__ == "ReduceLROnPlateau"
                    schedule.step(*([1.0] if takes_loss else []))
                rates[-1].append(optimizer.param_groups[0]["lr"])
        assert all(map(math.isclose, *rates))


@pytest.mark.parametrize("name", sorted({*DENSE} - {"Adafactor", "LBFGS", "Muon"}))
def test_large_parameters_are_updated_in_tiles(name):
    """More elements than a tile, and not a multiple of it; also laid out in another order."""
    options = {"lr": 0.1} | ({"momentum": 0.9} if name == "SGD" else {})
    if name != "Rprop":
        options["weight_decay"] = 0.1
    random = np.random.default_rng(0)
    flat = random.standard_normal((300, 471))
    ours = [ag.tensor(flat, requires_grad=True), ag.from_numpy(flat.T.copy().T)]
    ours[1].requires_grad_()
    assert not ours[1]._array.flags.c_contiguous
    theirs = [torch.tensor(flat, requires_grad=True) for _ in range(2)]
    train(getattr(ag.optim, name)(ours, **options), ours, 3)
    train(getattr(torch.optim, name)(theirs, **options), theirs, 3)
    assert_same(ours, theirs)


@pytest.mark.parametrize("name", INFOS)
def test_what_pytorch_refuses_is_refused(name):
    for sample in INFOS[name].optim_error_inputs_func("cpu", torch.float32):
        given = sample.optimizer_error_input
        if "dense params required" in given.desc:
            continue  # There are no sparse tensors but gradients.
        params = [torch.nn.Parameter(torch.ones(2, 3))] if given.params is None else given.params
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(sample.error_type, match=sample.error_regex):
                getattr(ag.optim, name)(*to_ours([params]), **to_ours(given.kwargs)).step()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": -1.0}),
        ("SGD", {"weight_decay": -1.0}),
        ("SGD", {"nesterov": True}),
        ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}),
        ("Adam", {"lr": -1.0}),
        ("Adam", {"eps": -1.0}),
        ("Adam", {"betas": (0.9, -0.1)}),
        ("RMSprop", {"lr": -1.0}),
        ("RMSprop", {"eps": -1.0}),
        ("RMSprop", {"weight_decay": -1.0}),
        ("RMSprop", {"alpha": -1.0}),
        ("Adagrad", {"lr": -1.0}),
        ("Adagrad", {"weight_decay": -1.0}),
        ("Adagrad", {"initial_accumulator_value": -1.0}),
        ("Adagrad", {"eps": -1.0}),
        ("Adadelta", {"eps": -1.0}),
        ("RAdam", {"betas": (-0.1, 0.9)}),
        ("Adafactor", {"lr": -1.0}),
        ("Adafactor", {"eps": (None, -1.0)}),
        ("Adafactor", {"weight_decay": -1.0}),
        ("Muon", {"lr": -1.0}),
        ("Muon", {"momentum": -1.0}),
        ("Muon", {"weight_decay": -1.0}),
    ],
)
def test_options_out_of_range(name, options):
    ours, theirs = start(name)
    with pytest.raises(ValueError, match=r"Invalid|Nesterov|should be") as caught:
        getattr(torch.optim, name)(theirs, **options)
    with pytest.raises(ValueError, match=re.escape(str(caught.value))):
        getattr(ag.optim, name)(ours, **options)


@pytest.mark.parametrize(
    "params",
    [
        lambda lib, p: [],
        lambda lib, p: [1.0],
        lambda lib, p: [p[0] * 2.0],
        lambda lib, p: [{"params": {p[0], p[1]}}],
        lambda lib, p: [{"params": [p[0]]}, 3],
    ],
)
def test_parameters_that_can_not_be_optimised(params):
    ours, theirs = start("SGD")
    with pytest.raises((TypeError, ValueError)) as caught:
        torch.optim.SGD(params(torch, theirs), lr=0.1)
    with pytest.raises(type(caught.value)):
        ag.optim.SGD(params(ag, ours), lr=0.1)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "Adadelta", "NAdam", "RAdam", "RMSprop"])
@pytest.mark.parametrize(("dtype", "size"), [("float16", 300.0), ("float32", 1e20)])
def test_the_mean_of_squares_that_overflow_is_finite(name, dtype, size):
    found = []
    for lib in (torch, ag):
        p = lib.ones(3, requires_grad=True, dtype=getattr(lib, dtype))
        optimizer = getattr(lib.optim, name)([p], lr=0.1)
        for _ in range(3):
            p.grad = lib.full((3,), size, dtype=p.dtype)
            optimizer.step()
        entries = [value.tolist() for _, value in sorted(optimizer.state[p].items())]
        found.append([p.tolist(), *entries])
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-2)


@pytest.mark.parametrize("shape", [(3000,), (3, 700), (700, 3), ()])
def test_adafactor_sums_bfloat16_in_float32(shape):
    """The result is about as near to that in float64 as PyTorch's, whose bits a CPU decides."""
    values = np.random.default_rng(0).standard_normal((4, *shape)).astype("float32")
    found = []
    for lib, dtype in ((ag, "bfloat16"), (torch, "bfloat16"), (torch, "float64")):
        p, *gradients = [
            lib.from_numpy(np.array(part)).to(lib.bfloat16).to(getattr(lib, dtype))
            for part in values
        ]
        p.requires_grad_()
        optimizer = lib.optim.Adafactor([p], lr=0.1, weight_decay=0.1)
        for p.grad in gradients:
            optimizer.step()
        assert {str(value.dtype).split(".")[1] for value in optimizer.state[p].values()} == {
            dtype, "float32",
        }  # fmt: skip
        entries = [value for _, value in sorted(optimizer.state[p].items())]
        found.append([np.array(value.tolist()) for value in (p.detach(), *entries)])
    for mine, other, exact in zip(*found, strict=True):
        assert abs(mine - exact).max() <= 2 * abs(other - exact).max() + 5e-3


def test_adafactor_of_float16_does_not_overflow():
    p = ag.ones(70_000, requires_grad=True, dtype=ag.float16)
    optimizer = ag.optim.Adafactor([p], lr=0.1)
    p.grad = ag.full((70_000,), 100.0, dtype=ag.float16)
    optimizer.step()
    assert p[0].item() == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "ASGD", "Adagrad", "Adafactor"])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_numbers_of_the_state_have_the_default_dtype_if_it_is_wide(name, dtype):
    kinds = []
    for lib in (torch, ag):
        lib.set_default_dtype(getattr(lib, dtype))
        try:
            p = lib.ones(2, requires_grad=True, dtype=lib.float32)
            p.grad = lib.ones(2, dtype=lib.float32)
            optimizer = getattr(lib.optim, name)([p])
            optimizer.step()
        finally:
            lib.set_default_dtype(lib.float32)
        kinds.append({key: oracle.dtype_name(x.dtype) for key, x in optimizer.state[p].items()})
    assert kinds[0] == kinds[1]
