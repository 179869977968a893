"""Mixed precision beside PyTorch's, on the host."""

import pickle
import warnings
from importlib import import_module

import pytest
from answers import check_answer

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

INF = float("inf")


def _trained(library, factors, interval=2):
    """A few steps whose gradients are multiplied by factors: weights, and the scaler's state."""
    w = library.tensor([1.0, -2.0], requires_grad=True)
    optimizer = library.optim.SGD([w], lr=0.1, momentum=0.9)
    scaler = library.amp.GradScaler("cpu", init_scale=4.0, growth_interval=interval)
    seen = []
    for factor in factors:
        optimizer.zero_grad()
        scaler.scale((w * w * factor).sum()).backward()
        if factor == 3.0:
            scaler.unscale_(optimizer)
            library.nn.utils.clip_grad_norm_([w], 1.0)
        scaler.step(optimizer)
        scaler.update()
        seen.append((w.tolist(), scaler.get_scale(), scaler.state_dict()))
    return seen


@pytest.mark.parametrize(
    "factors", [(1.0, 2.0, 1.0), (INF, 1.0, INF), (3.0, INF, 3.0, 1.0, 1.0), (float("nan"),)]
)
def test_steps_and_scales_are_pytorchs(factors):
    """Infinite gradients leave a step out; two good steps let the scale grow."""
    mine, theirs = _trained(ag, factors), _trained(torch, factors)
    for (w, *state), (other, *wanted) in zip(mine, theirs, strict=True):
        assert w == pytest.approx(other)
        assert state == wanted


def _scaler(library, **kwargs):
    w = library.ones(2, requires_grad=True)
    optimizer = library.optim.SGD([w], lr=0.1)
    scaler = library.amp.GradScaler("cpu", **kwargs)
    scaler.scale((w * w).sum()).backward()
    return w, optimizer, scaler


def _called(*names, **kwargs):
    def call(library):
        w, optimizer, scaler = _scaler(library, **kwargs)
        for name in names:
            getattr(scaler, name)(*(() if name == "update" else (optimizer,)))
        return w.tolist(), w.grad.tolist()

    return call


def _state_of_a_disabled_one(library):
    state = library.amp.GradScaler("cpu", enabled=False).state_dict()
    assert state == {}
    library.amp.GradScaler("cpu").load_state_dict(state)


def _loaded(library):
    _, optimizer, scaler = _scaler(library, init_scale=8.0, growth_factor=3.0)
    scaler.step(optimizer)
    scaler.update()
    other = library.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    return other.state_dict(), other.get_growth_factor(), other.get_scale()


def _set(library):
    _, _, scaler = _scaler(library)
    scaler.set_growth_factor(4.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(7)
    scaler.update(16.0)
    return scaler.state_dict(), scaler.get_backoff_factor(), scaler.get_growth_interval()


def _halves(library):
    w = library.ones(2, dtype=library.float16, requires_grad=True)
    w.grad = library.ones(2, dtype=library.float16)
    _scaler(library)[2].unscale_(library.optim.SGD([w], lr=0.1))


def _several(library):
    w = library.ones(2, requires_grad=True)
    scaler = library.amp.GradScaler("cpu", init_scale=2.0)
    scaled = scaler.scale([w.sum(), (w.sum(),)])
    return type(scaled).__name__, scaled[0].item(), scaled[1][0].item()


def _half_loss(library):
    """A loss near the largest number that float16 has."""
    scaled = library.amp.GradScaler("cpu").scale(library.ones((), dtype=library.float16) * 9)
    return str(scaled.dtype).split(".")[1], scaled.item()


def _pickled(*names):
    def call(library):
        _, optimizer, scaler = _scaler(library, init_scale=8.0)
        for name in names:
            getattr(scaler, name)(*(() if name == "update" else (optimizer,)))
        other = pickle.loads(pickle.dumps(scaler))
        return other.state_dict(), other.get_scale()

    return call


CASES = {
    "a loss of half precision": _half_loss,
    "pickled": _pickled(),
    "pickled between": _pickled("step", "update"),
    "pickled within": _pickled("unscale_"),
    "a step": _called("step"),
    "a step that is unscaled before": _called("unscale_", "step", "update", "unscale_"),
    "unscaled twice": _called("unscale_", "unscale_"),
    "unscaled after the step": _called("step", "unscale_"),
    "two steps": _called("step", "step"),
    "two steps with an update": _called("step", "update", "step"),
    "an update first": _called("update"),
    "a disabled one": _called("unscale_", "unscale_", "step", "step", "update", enabled=False),
    "a growth factor": _called(growth_factor=0.5),
    "a backoff factor": _called(backoff_factor=1.5),
    "a closure": lambda L: _scaler(L)[2].step(_scaler(L)[1], closure=lambda: None),
    "no gradients": lambda L: _scaler(L)[2].step(
        L.optim.SGD([L.ones(1, requires_grad=True)], lr=0.1)
    ),
    "no loss scaled": lambda L: L.amp.GradScaler("cpu").step(_scaler(L)[1]),
    "several losses": _several,
    "no loss": lambda L: L.amp.GradScaler("cpu").scale(3),
    "halves": _halves,
    "an empty state": _state_of_a_disabled_one,
    "loaded": _loaded,
    "set": _set,
    "off": lambda L: (L.amp.GradScaler("cpu", enabled=False).get_scale(), L.is_autocast_enabled()),
    "autocast off": lambda L: [
        type(x).__name__ for x in [L.autocast("cpu", enabled=False).__enter__()]
    ],
    "autocast of a number": lambda L: L.autocast(3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_results_and_errors_are_pytorchs(name):
    check_answer(CASES[name])


@pytest.mark.parametrize("module", ["amp", "cuda.amp"])
def test_without_a_gpu_both_are_off_and_say_so(module):
    """As a program has it that was written for one, from its imports on."""
    for library in ("asyncgrad", "torch"):
        amp = import_module(f"{library}.{module}")
        kind = ("cuda",) if module == "amp" else ()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scaler, context = amp.GradScaler(), amp.autocast(*kind)
        texts = [str(warning.message) for warning in caught]
        assert sum("isabling" in text for text in texts) == 2
        assert not scaler.is_enabled()
        x = import_module(library).ones(1, requires_grad=True)
        assert scaler.scale(x) is x
        with context:
            assert str((x @ x).dtype).endswith("float32")
    for decorator in (ag.cuda.amp.custom_fwd, ag.cuda.amp.custom_bwd, ag.cuda.amp.autocast(False)):
        assert decorator(_set) is _set
    assert ag.cuda.amp.custom_fwd(cast_inputs=ag.float32)(_set) is _set


def test_what_is_not_done_is_an_error():
    """Here PyTorch computes with bfloat16; to go on in another dtype would be silent."""
    with pytest.raises(RuntimeError, match=r"Pass enabled=False"):
        ag.autocast("cpu")
    assert ag.get_autocast_dtype("cpu") is ag.bfloat16
    assert ag.get_autocast_dtype("cuda") is ag.float16
    assert not ag.is_autocast_available("cpu")


def test_gradients_of_rows_are_unscaled():
    table = ag.ones(4, 2, requires_grad=True)
    optimizer = ag.optim.SGD([table], lr=1.0)
    scaler = ag.amp.GradScaler("cpu", init_scale=8.0)
    found = ag.nn.functional.embedding(ag.tensor([1, 1]), table, sparse=True)
    scaler.scale(found.sum()).backward()
    scaler.step(optimizer)
    assert table[:, 0].tolist() == [1, -1, 1, 1]


@pytest.mark.asyncio
async def test_a_pass_that_is_not_awaited_has_no_gradients_to_scale():
    """The error says so, and not that there are none."""
    w = ag.ones(2, requires_grad=True)
    optimizer, scaler = ag.optim.SGD([w], lr=1.0), ag.amp.GradScaler("cpu")
    pending = scaler.scale((w * w).sum()).backward()
    for use in (scaler.unscale_, scaler.step):
        with pytest.raises(ag.errors.PendingBackwardError, match="has not awaited"):
            use(optimizer)
    await pending
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [-1, -1]
