"""The parts of the demo, each alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import numpy as np
import pytest

from examples.digits import data, machine, report, variants
from examples.digits.machine import Noise
from examples.digits.service import Service
from examples.digits.ticker import ticker


def test_held_out_digits_are_a_quarter_and_never_trained_on():
    digits = data.load()
    assert digits.train_images.shape == (1347, 64)
    assert digits.test_images.shape == (450, 64)
    assert digits.train_images.dtype == np.float32
    assert digits.train_labels.dtype == np.int64
    assert digits.train_images.min() == 0.0
    assert digits.train_images.max() == 1.0
    assert set(digits.train_labels) == set(digits.test_labels) == set(range(10))
    seen = {image.tobytes() for image in digits.train_images}
    assert not any(image.tobytes() in seen for image in digits.test_images)


def test_shifted_moves_some_images_by_one_pixel_and_changes_no_other():
    images = data.load().train_images
    moved = data.shifted(images, np.random.default_rng(0))
    shifts = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    padded = np.pad(images.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    candidates = [padded[:, 1 + dy : 9 + dy, 1 + dx : 9 + dx].reshape(-1, 64) for dy, dx in shifts]
    matches = np.array([(candidate == moved).all(axis=1) for candidate in candidates])
    assert matches.any(axis=0).all()
    assert 0.4 < matches[shifts.index((0, 0))].mean() < 0.7


@pytest.mark.parametrize(
    "name",
    [
        *variants.NAMES[:2],
        *(pytest.param(name, marks=pytest.mark.torch) for name in variants.NAMES[2:]),
    ],
)
def test_classifier_starts_from_the_same_weights_in_either_library(name):
    variant = variants.load(name)
    model = variants.classifier(variant.library, width=16, seed=3)
    state = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
    assert {key: value.shape for key, value in state.items()} == {
        "0.weight": (16, 64),
        "0.bias": (16,),
        "2.weight": (16, 16),
        "2.bias": (16,),
        "4.weight": (10, 16),
        "4.bias": (10,),
    }
    expected = np.random.default_rng(3).uniform(-0.125, 0.125, (16, 64)).astype(np.float32)
    np.testing.assert_array_equal(state["0.weight"], expected)


def _model(seed: int):
    return variants.classifier(variants.load("asyncgrad").library, width=8, seed=seed)


async def _ask(reader, writer, line: bytes) -> dict:
    writer.write(line + b"\n")
    return json.loads(await reader.readline())


@pytest.mark.asyncio
async def test_service_answers_from_the_published_weights():
    """Before and after publish(), each answer is the one of exactly one model."""
    digits = data.load()
    images = digits.test_images[:20]
    first, second = _model(1), _model(2)
    async with Service(variants.load("asyncgrad"), lambda: _model(1)) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)

        async def answers() -> list[tuple[int, int]]:
            lines = [{"id": 0, "pixels": (image * 16).astype(int).tolist()} for image in images]
            got = [await _ask(reader, writer, json.dumps(line).encode()) for line in lines]
            return [(answer["digit"], answer["step"]) for answer in got]

        def expected(model, step: int) -> list[tuple[int, int]]:
            library = variants.load("asyncgrad").library
            with library.no_grad():
                logits = model(library.from_numpy(images)).numpy()
            return [(int(digit), step) for digit in logits.argmax(1)]

        assert await answers() == expected(first, 0)
        await service.publish(second, 7)
        assert await answers() == expected(second, 7)
        assert expected(first, 0) != expected(second, 0)
        assert service.answered == 40
        writer.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"[]",
        b"7",
        b"{}",
        b'{"pixels": 3}',
        b'{"pixels": [1, 2]}',
        b'{"id": 1, "pixels": ["a"]}',
        b"\xff\xfe",
        b'{"pixels": {"a": 1}}',
    ],
)
async def test_service_refuses_what_is_no_request_and_stays_open(line):
    async with Service(variants.load("asyncgrad"), lambda: _model(1)) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        assert "error" in await _ask(reader, writer, line)
        good = await _ask(reader, writer, json.dumps({"id": "a", "pixels": [0] * 64}).encode())
        assert good["id"] == "a"
        assert service.answered == 1
        writer.close()


@pytest.mark.asyncio
async def test_service_survives_a_line_without_an_end_and_a_client_that_leaves():
    async with Service(variants.load("asyncgrad"), lambda: _model(1)) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(b"x" * 200_000)
        with contextlib.suppress(ConnectionError):  # it hung up, without reading to the end
            assert await reader.read() == b""
        writer.close()
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.transport.abort()
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        request = json.dumps({"id": 1, "pixels": [0] * 64}).encode()
        assert (await _ask(reader, writer, request))["id"] == 1
        writer.close()


@pytest.mark.asyncio
async def test_service_ends_with_connections_open():
    async with Service(variants.load("asyncgrad"), lambda: _model(1)) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        await _ask(reader, writer, b"hello")
    assert await reader.read() == b""
    writer.close()


@pytest.mark.asyncio
async def test_ticker_sees_who_holds_the_loop_and_leaves_no_task():
    before = asyncio.all_tasks()
    async with ticker() as delays:
        time.sleep(0.05)  # noqa: ASYNC251 - this is what it is there to see
        await asyncio.sleep(0.002)
    assert max(delays) >= 0.045
    assert asyncio.all_tasks() == before


def _result(name="asyncgrad", accuracy=0.98, ratio=1.5, lag=4.0):
    return {
        "variant": name,
        "accuracy": accuracy,
        "p99_ratio": ratio,
        "with_training": {"lag_max_ms": lag},
    }


QUIET, BUSY = Noise(0.1, 0.5, 0.0), Noise(0.4, 12.0, 1.0)


@pytest.mark.parametrize(("results", "seconds", "missed"), [
    ([_result()], 40, 0),
    ([_result(accuracy=0.969)], 40, 1),
    ([_result(ratio=2.1)], 40, 1),
    ([_result(lag=10.1)], 40, 1),
    ([_result()], 61, 1),
    ([_result(), _result("asyncgrad-blocking", lag=70.0, ratio=9.0)], 40, 0),
    ([_result(), _result("torch-inline", lag=70.0)], 40, 0),
    ([_result(), _result("torch-inline", lag=30.0)], 40, 1),
    ([_result(), _result("torch-thread", ratio=9.0, lag=30.0)], 40, 0),
])  # fmt: skip
def test_checks_hold_asyncgrad_to_its_promises_and_pytorch_to_none(results, seconds, missed):
    outcomes = list(report.checks(results, seconds, QUIET).values())
    assert outcomes.count(report.MISSED) == missed
    assert outcomes.count(report.KEPT) == len(outcomes) - missed


def test_a_busy_machine_is_said_to_be_busy_and_no_promise_of_time_is_judged_on_it():
    results = [_result(accuracy=0.5, ratio=3.0, lag=30.0)]
    outcomes = report.checks(results, 61, BUSY)
    assert [outcomes[name] for name in outcomes if "accuracy" in name] == [report.MISSED]
    assert list(outcomes.values()).count(report.NOT_JUDGED) == 3


@pytest.mark.parametrize("seconds", [0.05, 0.001])
def test_the_machine_is_measured_while_the_program_is_idle(seconds):
    """Also where the ticker ticks once, as in a longer time on a busy machine."""
    noise = machine.listen(seconds)
    assert 0.0 <= noise.lag_p99_ms <= noise.lag_max_ms
    assert noise.other_cores is None or noise.other_cores >= 0.0
    assert QUIET.worse(BUSY) == BUSY
    assert not QUIET.is_busy
    assert BUSY.is_busy
    assert "12.00 ms at worst; other programs used 1.0" in str(BUSY)


@pytest.mark.asyncio
async def test_every_variant_of_asyncgrad_computes_the_same():
    gradients = []
    for name in ("asyncgrad", "asyncgrad-blocking"):
        variant, model = variants.load(name), _model(1)
        loss = model(variant.library.ones(2, 64)).square().sum()
        await variant.backward(loss)
        gradients.append([parameter.grad.numpy() for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_pytorch_asyncgrad_is_shown_beside_itself(monkeypatch):
    monkeypatch.setattr(variants.importlib.util, "find_spec", lambda name: None)
    assert variants.to_compare() == ("asyncgrad", "asyncgrad-blocking")
