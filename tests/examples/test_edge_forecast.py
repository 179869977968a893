"""The hub: as a whole, cancelled at every step of a training, and against nonsense on its port."""

import asyncio
import contextlib
import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from programs import EXAMPLES, ROOT

from examples.edge_forecast import forecaster as forecasters
from examples.edge_forecast.command import ask, main
from examples.edge_forecast.forecaster import train
from examples.edge_forecast.hub import Hub
from examples.edge_forecast.readings import AHEAD, PAST, features, load, targets
from examples.edge_forecast.web import Web


def test_the_hub_forecasts_better_than_the_day_before_while_it_lives(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["command", "--days", "120", "--json"])
    assert main() == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["trainings"] >= 1
    assert figures["error"] < figures["error_of_yesterday"]
    assert figures["answered"] > 0
    assert 0 <= figures["page_p50_ms"] <= figures["page_p99_ms"]


def test_it_needs_nothing_but_the_core_dependencies():
    script = (
        "import sys; sys.modules['scipy'] = None\n"
        "import examples.edge_forecast.command\n"
        "print([m for m in ('torch', 'scipy', 'rich', 'fastapi') if sys.modules.get(m)])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_data_is_what_its_readme_says():
    file = EXAMPLES / "data" / "seattle-weather.csv.gz"
    assert hashlib.sha256(file.read_bytes()).hexdigest() in (file.parent / "README.md").read_text()
    assert load().shape == (1461, 4)


def test_features_end_before_what_is_forecast():
    readings = load()
    day = np.array([100])
    changed = readings.copy()
    changed[100:] = 0
    assert np.array_equal(features(readings, day), features(changed, day))
    assert np.allclose(targets(readings, day) * 10, readings[None, 100 : 100 + AHEAD, 1])
    assert features(readings, np.array([PAST])).shape == (1, 4 * PAST + 2)


@pytest.mark.asyncio
async def test_a_training_can_be_cancelled_at_any_step_and_publishes_nothing(monkeypatch):
    hub = Hub(load(), known=400, tick=1.0)
    hub.start_training()
    await hub._training
    published = hub.published
    weights = {name: value.clone() for name, value in published.model.state_dict().items()}
    ahead = hub.forecast()
    for stop_after in range(1, 60, 7):

        async def stopping(readings, *, progress, stop_after=stop_after):
            def count(step, loss):
                progress(step, loss)
                if step == stop_after:
                    hub.cancel_training()

            return await train(readings, progress=count)

        monkeypatch.setattr("examples.edge_forecast.hub.train", stopping)
        hub.start_training()
        with pytest.raises(asyncio.CancelledError):
            await hub._training
        assert hub.published is published
        assert hub.forecast() == ahead
    for name, value in published.model.state_dict().items():
        assert (value == weights[name]).all()


@pytest.mark.asyncio
async def test_who_lives_shorter_than_its_first_training_waits_for_it():
    hub = Hub(load(), known=400, tick=0.0)
    hub.start_training()
    await hub.run(1)
    assert hub.trainings == 1
    assert hub.published is not None


@pytest.mark.asyncio
async def test_the_page_answers_nonsense_with_4xx_and_goes_on():
    hub = Hub(load(), known=400, tick=1.0)
    async with hub.web:
        for request, status in (
            (b"GET /nowhere HTTP/1.1\r\n\r\n", b"404"),
            (b"PUT /forecast HTTP/1.1\r\n\r\n", b"405"),
            (b"hello\r\n\r\n", b"400"),
            (b"\x00\xff\xfe\r\n\r\n", b"400"),
            (b"POST /training/start HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"413"),
            (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", b"431"),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", hub.web.port)
            writer.write(request)
            answer = await reader.read()
            assert answer.split(b" ")[1] == status
            writer.close()
        assert (await ask(hub.web.port, "GET", "/forecast"))["celsius"] is None


@pytest.mark.asyncio
async def test_a_request_that_does_not_end_is_refused_in_time(monkeypatch):
    monkeypatch.setattr("examples.edge_forecast.web._SECONDS", 0.01)
    hub = Hub(load(), known=400, tick=1.0)
    async with hub.web:
        reader, writer = await asyncio.open_connection("127.0.0.1", hub.web.port)
        writer.write(b"GET /fore")
        assert (await reader.read()).startswith(b"HTTP/1.1 408")
        writer.close()


@pytest.mark.asyncio
async def test_who_does_not_read_its_answer_is_left(monkeypatch):
    """Else it would keep its connection, and the hub could not end."""
    monkeypatch.setattr("examples.edge_forecast.web._SECONDS", 0.01)
    answer = "x" * (1 << 25)  # more than all buffers hold
    async with Web({("GET", "/"): lambda: answer}) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await asyncio.wait(list(web._connections))
        taken = 0
        with contextlib.suppress(ConnectionResetError):
            while some := await reader.read(1 << 20):
                taken += len(some)
        assert taken < len(answer)
        writer.close()


@pytest.mark.asyncio
async def test_who_is_connected_and_asks_for_nothing_makes_room(monkeypatch):
    monkeypatch.setattr("examples.edge_forecast.web._MOST", 3)
    hub = Hub(load(), known=400, tick=1.0)
    async with hub.web:
        idle = [await asyncio.open_connection("127.0.0.1", hub.web.port) for _ in range(5)]
        assert (await ask(hub.web.port, "GET", "/forecast"))["celsius"] is None
        for reader, _ in idle[:2]:
            assert await reader.read() == b""
        for _, writer in idle:
            writer.close()


def test_background_training_is_less_urgent_than_the_default():
    assert forecasters.BACKGROUND < 0
