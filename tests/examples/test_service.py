"""The digits service, asked over HTTP: what it answers, refuses, learns and survives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
from programs import ROOT, service

pytest.importorskip("fastapi", reason="FastAPI is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")

import asyncgrad as ag  # noqa: E402
from asyncgrad.serialization import load_safetensors  # noqa: E402
from examples.digits.data import load  # noqa: E402
from examples.service import checkpoint  # noqa: E402
from examples.service.app import Settings, create_app  # noqa: E402
from examples.service.calm import Calm  # noqa: E402
from examples.service.lag import INTERVAL, Lag  # noqa: E402
from examples.service.learner import UNDONE, Learner  # noqa: E402
from examples.service.model import Published, make_model, shifts  # noqa: E402
from examples.service.spool import Full, Spool, lead  # noqa: E402
from examples.service.trainer import Trainer  # noqa: E402


@asynccontextmanager
async def serving(tmp_path, **settings):
    """The application, in this process, and a client of it."""
    app = create_app(Settings(weights=tmp_path / "w.safetensors", timeout=100, **settings))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield app, client


def picture(number: int = 0) -> list[float]:
    return load().test_images[number].tolist()


@pytest.mark.asyncio
async def test_it_predicts_explains_and_adapts(tmp_path):
    digits = load()
    async with serving(tmp_path, first_steps=150) as (_, client):
        asked = [client.post("/predict", json={"pixels": picture(n)}) for n in range(40)]
        answers = [answer.json() for answer in await asyncio.gather(*asked)]
        right = sum(a["digit"] == digits.test_labels[n] for n, a in enumerate(answers))
        assert right >= 32
        assert all(abs(sum(a["probabilities"]) - 1) < 1e-4 for a in answers)

        why = (await client.post("/explain", json={"pixels": picture(3)})).json()
        assert why["digit"] == answers[3]["digit"]
        model = _model(tmp_path)
        image = np.array(picture(3), np.float32)
        logits = _logits(model, np.stack([image, np.zeros_like(image)]))[:, why["digit"]]
        # Integrated gradients add up to what the digit has and an empty image has not.
        assert sum(why["integrated"]) == pytest.approx(logits[0] - logits[1], rel=0.05, abs=0.05)
        step = 1e-2
        pixel = int(np.argmax(np.abs(why["gradient"])))
        moved = np.stack([image, image])
        moved[0, pixel] += step
        moved[1, pixel] -= step
        up, down = _logits(model, moved)[:, why["digit"]]
        assert why["gradient"][pixel] == pytest.approx((up - down) / (2 * step), rel=0.1, abs=0.05)

        adapted = (
            await client.post("/adapt", json={"pixels": picture(3), "within_ms": 60_000})
        ).json()
        assert adapted["adapted"]
        assert adapted["probabilities"] != adapted["before"]
        hurried = (
            await client.post("/adapt", json={"pixels": picture(3), "within_ms": 1e-6})
        ).json()
        assert not hurried["adapted"]
        assert hurried["probabilities"] == hurried["before"]
        assert hurried["before"] == pytest.approx(answers[3]["probabilities"], abs=1e-6)


def _model(tmp_path):
    model = make_model()
    assert checkpoint.load(tmp_path / "w.safetensors", model) is not None
    return model


def _logits(model, images):
    with ag.no_grad():
        return model(ag.from_numpy(images)).numpy()


@pytest.mark.asyncio
async def test_it_learns_from_a_correction_and_publishes_it_at_once(tmp_path):
    strange = np.eye(8, dtype=np.float32).reshape(-1).tolist()
    async with serving(tmp_path, first_steps=100) as (app, client):
        before = (await client.post("/predict", json={"pixels": strange})).json()
        wrong = (before["digit"] + 1) % 10
        with app.state.learner.watching() as events:
            answer = await client.post("/correct", json={"pixels": strange, "digit": wrong})
            assert answer.status_code == 202
            seen = []
            while not (seen and seen[-1].get("published")):
                seen.append(await events.get())
                # In the midst of learning it answers with the old weights, whole.
                now = (await client.post("/predict", json={"pixels": strange})).json()
                assert now["step"] in (before["step"], before["step"] + 12)
        after = (await client.post("/predict", json={"pixels": strange})).json()
        assert after["digit"] == wrong
        assert after["step"] == before["step"] + 12 == app.state.learner.step
        # Pages that are open list it, whoever sent it.
        assert [each["name"] for each in seen[0]["corrections"]] == [answer.json()["name"]]
        assert [event["step"] for event in seen if "loss" in event] == list(
            range(before["step"] + 1, after["step"] + 1)
        )
    kept = load_safetensors(tmp_path / "w.safetensors")
    async with serving(tmp_path) as (app, client):
        again = (await client.post("/predict", json={"pixels": strange})).json()
        assert again == after
    for name, value in app.state.learner.published.model.state_dict().items():
        assert (value == kept[name]).all()


@pytest.mark.asyncio
async def test_nonsense_is_answered_with_4xx_and_disturbs_nobody(tmp_path):
    async with serving(tmp_path, first_steps=20) as (_, client):
        good = {"pixels": picture()}
        nan = json.dumps({"pixels": [float("nan")] * 64})
        for path, content, status in (
            ("/predict", json.dumps({"pixels": [0.0] * 63}), 422),
            ("/predict", json.dumps({"pixels": [2.0] * 64}), 422),
            ("/predict", json.dumps({"pixels": "x" * 64}), 422),
            ("/predict", json.dumps({"pixels": ["1"] * 64}), 422),
            ("/predict", json.dumps({"pixels": [True] * 64}), 422),
            ("/predict", json.dumps(good | {"more": 1}), 422),
            ("/predict", nan, 422),
            ("/predict", "{", 422),
            ("/predict", b"\xff\xfe", 422),
            ("/correct", json.dumps(good | {"digit": 10}), 422),
            ("/adapt", json.dumps(good | {"within_ms": -1}), 422),
            ("/adapt", json.dumps(good | {"within_ms": 1e9}), 422),
            ("/predict", b"x" * 100_000, 413),
            ("/nowhere", "{}", 404),
        ):
            answer = await client.post(path, content=content)
            assert answer.status_code == status, (path, content[:40])
        assert (await client.get("/predict")).status_code == 405

        async def endless():
            for _ in range(1_000):
                yield b"x" * 1_000

        assert (await client.post("/predict", content=endless())).status_code in {400, 413}
        for fine in (good, {"pixels": [0, 1] * 32}):
            assert (await client.post("/predict", json=fine)).status_code == 200


@pytest.mark.asyncio
async def test_it_shows_its_health_metrics_engine_and_page(tmp_path):
    app = create_app(Settings(weights=tmp_path / "w.safetensors", first_steps=5))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        assert "digits_learner_alive 0.0" in (await client.get("/metrics")).text
        async with app.router.lifespan_context(app):
            assert (await client.get("/readyz")).status_code == 200
            await client.post("/explain", json={"pixels": picture()})
            text = (await client.get("/metrics")).text
            assert 'digits_request_seconds_count{name="explain"} 1.0' in text
            assert "asyncgrad_engine_passes" in text
            assert "asyncgrad_engine_lag" in text
            engine = (await client.get("/engine")).json()
            assert engine["passes"] > 0
            assert engine["lag"] >= 0
            page = (await client.get("/")).text
            assert "page/script.js" in page
            assert "EventSource" in (await client.get("/page/script.js")).text
            assert "http://" not in page.replace("http://www.w3.org", "")
        assert (await client.get("/readyz")).status_code == 503


@pytest.mark.asyncio
async def test_too_much_at_once_is_refused_and_the_rest_is_answered(tmp_path):
    async with serving(tmp_path, first_steps=5, concurrent=1, max_waiting=2) as (_, client):
        asked = [client.post("/explain", json={"pixels": picture(n)}) for n in range(20)]
        answers = await asyncio.gather(*asked)
        statuses = {answer.status_code for answer in answers}
        assert statuses <= {200, 503}
        assert 200 in statuses
        assert all(a.headers["retry-after"] == "1" for a in answers if a.status_code == 503)


@pytest.mark.asyncio
async def test_who_has_no_turn_before_its_time_is_over_is_answered_without_adaptation(
    tmp_path, monkeypatch
):
    inside, leave = asyncio.Event(), asyncio.Event()

    async def endless(self, image, digit):
        inside.set()
        await leave.wait()
        return image

    monkeypatch.setattr(Published, "integrated_gradients", endless)
    async with serving(tmp_path, first_steps=5, concurrent=1) as (_, client):
        first = asyncio.ensure_future(client.post("/explain", json={"pixels": picture()}))
        await inside.wait()
        answer = await client.post("/adapt", json={"pixels": picture(), "within_ms": 1.0})
        assert answer.status_code == 200
        assert not answer.json()["adapted"]
        assert answer.json()["probabilities"] == answer.json()["before"]
        leave.set()
        assert (await first).status_code == 200


def test_shifts_keep_the_image_first_and_lose_only_its_edge():
    image = np.zeros((8, 8), np.float32)
    image[3, 4] = 1
    moved = shifts(image.reshape(-1)).reshape(5, 8, 8)
    assert [tuple(map(int, np.argwhere(m)[0])) for m in moved] == [
        (3, 4), (4, 4), (2, 4), (3, 5), (3, 3),
    ]  # fmt: skip


#: Keeps weights whose values are all their step's number. For each step that is asked for, a fork
#: keeps that one, and then stops on its way to keep the next: before or after a call of Python's or
#: of C's, the one that is asked for.
WRITER = """
import os, pathlib, signal, sys
from examples.service import checkpoint
from examples.service.model import Published, make_model
path, model = pathlib.Path(sys.argv[1]), make_model()

def keep(step, stop=None):
    for p in model.parameters():
        p._array[...] = step
    published, seen = Published.of(model, step), 0

    def count(*_):
        nonlocal seen
        seen += 1
        if seen == stop:
            print(os.getpid(), flush=True)
            signal.pause()

    sys.setprofile(count)
    checkpoint.save(published, path)
    sys.setprofile(None)
    return seen

keep(0)
print(keep(0), flush=True)
for line in sys.stdin:
    step, stop = map(int, line.split())
    writer = os.fork()
    if not writer:
        keep(step)
        keep(step + 1, stop)
        print(0, flush=True)
        os._exit(1)
    _, status = os.waitpid(writer, 0)
    print(os.WTERMSIG(status), flush=True)
"""


def test_a_kill_in_the_midst_of_a_checkpoint_loses_nothing(tmp_path):
    """Fifty times, all along its way: the file is always a whole one, of the old or new step."""
    path = tmp_path / "w.safetensors"
    writing = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert writing.stdin is not None
    assert writing.stdout is not None
    calls = int(writing.stdout.readline())
    step, new = 0, []
    for kill in range(50):
        step += 1
        print(step, 1 + kill * calls // 50, file=writing.stdin, flush=True)
        writer = int(writing.stdout.readline())
        assert writer > 0, "it has not come so far"
        os.kill(writer, signal.SIGKILL)
        assert int(writing.stdout.readline()) == signal.SIGKILL
        found = checkpoint.load(path, make_model())
        assert found is not None
        assert found.step in (step, step + 1)
        for value in found.model.state_dict().values():
            assert (value == found.step).all()
        # At most what this writer has left; the next one clears it away.
        assert len(list(tmp_path.iterdir())) <= 2
        new.append(found.step == step + 1)
        step = found.step
    # The old one until a moment, and the new one from then on.
    assert new == sorted(new)
    assert {*new} == {False, True}
    writing.communicate()
    assert writing.returncode == 0
    checkpoint.save(Published.of(make_model(), step), path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_one_command_starts_it_and_a_signal_ends_it(tmp_path):
    with service(tmp_path) as (process, port):
        answer = httpx.post(f"http://127.0.0.1:{port}/predict", json={"pixels": picture()})
        assert answer.status_code == 200
        with httpx.stream("GET", f"http://127.0.0.1:{port}/events") as events:
            assert next(events.iter_lines()).startswith("data: ")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=100)
        assert process.returncode in (0, -signal.SIGTERM)
        assert "Traceback" not in said
    assert (tmp_path / "w.safetensors").exists()


def asked(port: int, path: str, **body) -> dict:
    """What the service answers on a connection of its own."""
    answer = httpx.post(f"http://127.0.0.1:{port}/{path}", json=body, timeout=100)
    assert answer.is_success, answer.text
    return answer.json()


def test_of_several_workers_one_learns_and_all_answer_with_what_it_has_learnt(tmp_path):
    strange = np.eye(8, dtype=np.float32).reshape(-1).tolist()
    with service(tmp_path, "--workers", "3") as (process, port):
        before = asked(port, "predict", pixels=strange)
        wrong = (before["digit"] + 1) % 10
        # Whichever takes it, the one that learns finds it.
        asked(port, "correct", pixels=strange, digit=wrong)
        new, old = 0, before["step"]
        while new < 20:
            now = asked(port, "predict", pixels=strange)
            assert now["step"] in (old, old + 12)
            # Nobody goes back for long: those that follow look for what is new.
            new = new + 1 if now["step"] == old + 12 else 0
        assert now["digit"] == wrong
        # It is removed just after its weights have been published.
        while list((tmp_path / "w.safetensors.corrections").glob("*.json")):
            asked(port, "predict", pixels=strange)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=100)
        assert "Traceback" not in said
    assert checkpoint.fields_of(tmp_path / "w.safetensors")[0] == old + 12
    assert list((tmp_path / "w.safetensors.corrections").iterdir()) == []


def test_workers_whose_supervisor_is_killed_end_and_leave_the_port(tmp_path):
    with service(tmp_path, "--workers", "2") as (process, port):
        asked(port, "predict", pixels=picture())
        process.kill()
        # It ends when the last of those has that write to the same pipe.
        _, said = process.communicate(timeout=100)
        assert "Traceback" not in said
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=100)
    with lead(tmp_path / "w.safetensors.lock") as free:
        assert free is not None


def test_a_signal_while_it_learns_and_requests_wait_answers_those_and_loses_no_correction(tmp_path):
    count, path = 40, tmp_path / "w.safetensors"
    strange = np.eye(8, dtype=np.float32).reshape(-1).tolist()
    with service(tmp_path, "--grace", "100") as (process, port):
        for _ in range(count):
            asked(port, "correct", pixels=strange, digit=3)
        body = json.dumps({"pixels": picture()}).encode()
        waiting = []
        for _ in range(20):
            one = socket.create_connection(("127.0.0.1", port), timeout=100)
            one.sendall(
                b"POST /explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body
            )
            waiting.append(one)
        # All that were sent before this one have been accepted.
        asked(port, "predict", pixels=strange)
        process.send_signal(signal.SIGTERM)
        for one in waiting:
            with one, one.makefile("rb") as answer:
                # Those that it has begun to read are answered; no connection hangs.
                assert answer.read()[:12] in (b"HTTP/1.1 200", b"")
        _, said = process.communicate(timeout=100)
        assert "Traceback" not in said
    left = len(list((tmp_path / "w.safetensors.corrections").iterdir()))
    learnt, rest = divmod(checkpoint.fields_of(path)[0] - 400, 12)
    assert rest == 0
    # The one that was being learnt when its file was about to go is learnt again.
    assert learnt + left in (count, count + 1)


def test_a_kill_while_it_learns_loses_no_correction(tmp_path):
    strange = np.eye(8, dtype=np.float32).reshape(-1).tolist()
    with service(tmp_path) as (process, port):
        before = asked(port, "predict", pixels=strange)
        wrong = (before["digit"] + 1) % 10
        for _ in range(10):
            asked(port, "correct", pixels=strange, digit=wrong)
        process.kill()
    with service(tmp_path) as (_, port):
        while list((tmp_path / "w.safetensors.corrections").glob("*.json")):
            asked(port, "predict", pixels=strange)
        after = asked(port, "predict", pixels=strange)
    assert after["digit"] == wrong
    assert after["step"] - before["step"] in (120, 132)


@pytest.mark.asyncio
async def test_what_cannot_be_read_or_kept_stops_no_learning(tmp_path, monkeypatch, caplog):
    strange = np.eye(8, dtype=np.float32).reshape(-1).tolist()
    corrections = tmp_path / "w.safetensors.corrections"
    corrections.mkdir()
    for number, text in enumerate(("", "[]", '{"pixels": [1], "digit": 2}', '{"digit": 2}')):
        (corrections / f"{number}.json").write_text(text)
    monkeypatch.setattr("examples.service.learner.RETRY", 0.0)
    async with serving(tmp_path, first_steps=5) as (app, client):
        save, refused = checkpoint.save, 0

        def full(*args):
            nonlocal refused
            if refused < 2:
                refused += 1
                raise OSError(28, "No space left on device")
            save(*args)

        monkeypatch.setattr(checkpoint, "save", full)
        with app.state.learner.watching() as events:
            await client.post("/correct", json={"pixels": strange, "digit": 3})
            while not (await events.get()).get("published"):
                assert (await client.get("/healthz")).status_code == 200
        assert refused == 2
        # It is removed just after it is published.
        while await ag.offload(list, corrections.glob("*.json")):
            pass
        assert (await client.post("/predict", json={"pixels": strange})).json()["digit"] == 3
    assert sorted(file.name for file in corrections.iterdir()) == [
        f"{number}.unreadable" for number in range(4)
    ]
    assert caplog.text.count("the disk does not take part") == 2


@pytest.mark.asyncio
async def test_the_health_check_says_that_the_learner_has_died(tmp_path, monkeypatch):
    async def serve():
        async with serving(tmp_path, first_steps=5) as (app, client):
            assert (await client.get("/healthz")).status_code == 200
            monkeypatch.setattr(checkpoint, "save", lambda *args: 1 / 0)
            await client.post("/correct", json={"pixels": picture(), "digit": 3})
            await asyncio.wait([app.state.learner._task])
            answer = await client.get("/healthz")
            assert answer.status_code == 503
            assert "learner has died" in answer.text
            assert "digits_learner_alive 0.0" in (await client.get("/metrics")).text
            assert (await client.post("/predict", json={"pixels": picture()})).status_code == 200

    # What it died of is raised where it is waited for: at the end.
    with pytest.raises(ZeroDivisionError):
        await serve()


def test_a_correction_too_many_is_refused_and_the_first_to_come_is_the_first_out(tmp_path):
    spool = Spool(tmp_path / "waiting", 2)
    assert spool.first() == (None, 0)
    assert [spool.put(np.full(64, n, np.float32), n)[1] for n in (1, 0)] == [1, 2]
    with pytest.raises(Full, match="2 corrections wait"):
        spool.put(np.zeros(64, np.float32), 2)
    again = Spool(tmp_path / "waiting", 2)
    for digit, others in ((1, 1), (0, 0)):
        found, left = again.first()
        assert (found.digit, left) == (digit, others)
        assert (found.image == digit).all()
        found.file.unlink()


def test_one_process_leads_until_it_ends(tmp_path):
    first = lead(tmp_path / "lock")
    assert lead(tmp_path / "lock") is None
    first.close()
    with lead(tmp_path / "lock") as second:
        assert second is not None


@pytest.mark.asyncio
async def test_when_the_process_that_learns_ends_another_one_learns(tmp_path):
    async with AsyncExitStack() as running:
        first = Learner(Trainer(), tmp_path / "w.safetensors", first_steps=5)
        await running.enter_async_context(first)
        async with serving(tmp_path) as (app, client):
            learner = app.state.learner
            assert not learner.leads
            await running.aclose()
            with learner.watching() as events:
                answer = await client.post("/correct", json={"pixels": picture(1), "digit": 1})
                name = answer.json()["name"]
                while name not in (await _published(events))["learnt"]:
                    pass
            assert (learner.leads, learner.step) == (True, 5 + 12)
            assert (await client.delete(f"/corrections/{name}")).status_code == 202


@pytest.mark.asyncio
async def test_a_process_that_takes_over_learns_only_from_the_newest_weights(tmp_path, monkeypatch):
    """If it can't read them at that moment, it tries again."""
    path, tries = tmp_path / "w.safetensors", 0
    monkeypatch.setattr("examples.service.learner.RETRY", 0.0)
    async with AsyncExitStack() as running:
        first = Learner(Trainer(), path, first_steps=5)
        await running.enter_async_context(first)
        async with serving(tmp_path) as (app, client):
            learner, load = app.state.learner, checkpoint.load
            # What the first one has published last, and the second one has not read yet.
            learner.published = replace(learner.published, step=4)
            learner.step = 4

            def unreadable(*args):
                nonlocal tries
                tries += 1
                if tries < 4:
                    raise OSError(5, "Input/output error")
                return load(*args)

            monkeypatch.setattr(checkpoint, "load", unreadable)
            await running.aclose()
            with learner.watching() as events:
                await client.post("/correct", json={"pixels": picture(1), "digit": 1})
                while not (await events.get()).get("published"):
                    assert not learner.leads
                assert (learner.leads, learner.step) == (True, 5)
                await _published(events)
            assert (tries, learner.step) == (4, 5 + 12)


@pytest.mark.asyncio
async def test_all_processes_answer_without_a_correction_that_one_has_undone(tmp_path):
    """Undoing the last one takes no step, so the step alone doesn't tell that weights are new."""
    async with AsyncExitStack() as running:
        first = Learner(Trainer(), tmp_path / "w.safetensors", first_steps=5)
        await running.enter_async_context(first)
        async with serving(tmp_path) as (app, client):
            follower = app.state.learner
            with follower.watching() as events:
                sent = await client.post("/correct", json={"pixels": picture(1), "digit": 7})
                name = sent.json()["name"]
                assert list((await _published(events))["learnt"]) == [name]
                learnt = follower.published.model[0].weight.tolist()
                await client.delete(f"/corrections/{name}")
                async with asyncio.timeout(60):
                    after = await _published(events)
            assert ([*after["learnt"]], [*after["undone"]]) == ([], [name])
            assert follower.published.model[0].weight.tolist() != learnt
            assert not follower.leads


@pytest.mark.asyncio
async def test_learning_waits_until_nobody_does_or_has_waited_long_enough():
    calm = Calm()
    await calm.wait(1_000)
    with calm.request():
        await calm.wait(0)
        with calm.request():
            waiting = asyncio.ensure_future(calm.wait(1_000))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        assert calm.inside == 1
    await waiting


async def _published(events, count=1):
    """The last of so many events of a publication."""
    while count:
        event = await events.get()
        count -= bool(event.get("published"))
    return event


@pytest.mark.asyncio
@pytest.mark.parametrize("manner", ["awaited", "blocking"])
async def test_requests_are_answered_beside_heavy_passes_of_either_manner(tmp_path, manner):
    async with serving(tmp_path, first_steps=5, burden=True) as (_, client):
        assert (await client.put("/burden", json={"manner": manner})).json() == {"manner": manner}
        for number in range(3):
            answer = await client.post("/predict", json={"pixels": picture(number)})
            assert answer.status_code == 200
        assert (await client.delete("/burden")).json() == {"manner": None}
        refused = await client.put("/burden", json={"manner": "awaited", "seconds": 1e9})
        assert refused.status_code == 422


@pytest.mark.asyncio
async def test_nobody_can_hold_the_loop_of_a_service_that_is_not_for_that(tmp_path):
    async with serving(tmp_path, first_steps=5) as (_, client):
        answer = await client.put("/burden", json={"manner": "blocking"})
        assert answer.status_code == 404


@pytest.mark.asyncio
async def test_examples_are_one_digit_of_each_kind(tmp_path):
    async with serving(tmp_path, first_steps=5) as (_, client):
        examples = (await client.get("/examples")).json()
        assert [each["digit"] for each in examples] == list(range(10))
        answer = await client.post("/predict", json={"pixels": examples[3]["pixels"]})
        assert answer.status_code == 200


@pytest.mark.asyncio
async def test_undoing_a_correction_learns_anew_what_came_after_it(tmp_path):
    images = [np.eye(8, dtype=np.float32)[::-1].reshape(-1).tolist(), [0.5] * 64, picture(1)]
    async with serving(tmp_path, first_steps=20) as (app, client):
        learner = app.state.learner
        with learner.watching() as events:
            names = []
            for digit, image in enumerate(images):
                answer = await client.post("/correct", json={"pixels": image, "digit": digit})
                names.append(answer.json()["name"])
            assert list((await _published(events, 3))["learnt"]) == names
            step = learner.step
            assert (await client.delete(f"/corrections/{names[1]}")).status_code == 202
            after = await _published(events)
            assert list(after["learnt"]) == [names[0], names[2]]
            assert after["step"] == step + 12  # of the third one, once more
            # The same again changes nothing more.
            weights = learner.published.model.state_dict()
            assert (await client.delete(f"/corrections/{names[1]}")).status_code == 202
            assert list((await _published(events))["learnt"]) == [names[0], names[2]]
            for name, value in learner.published.model.state_dict().items():
                assert (value == weights[name]).all()
            # Without any correction the weights are those before the first.
            for name in names[::2]:
                await client.delete(f"/corrections/{name}")
            assert list((await _published(events, 2))["learnt"]) == []
        assert (await client.delete("/corrections/unknown")).status_code == 404
        story = learner.story()
        assert [each["name"] for each in story["corrections"]] == names
        assert set(story["undone"]) == set(names)
        assert len(story["losses"]) == 12 * 5
    untouched = make_model()
    async with serving(tmp_path / "other", first_steps=20) as (app, _):
        untouched.load_state_dict(app.state.learner.published.model.state_dict())
    model = _model(tmp_path)
    for name, value in untouched.state_dict().items():
        assert (value == model.state_dict()[name]).all()


@pytest.mark.asyncio
async def test_a_correction_that_waits_is_left_out_when_it_is_undone(tmp_path):
    async with serving(tmp_path, first_steps=5) as (app, client):
        with app.state.learner.watching() as events:
            first, second = [
                (await client.post("/correct", json={"pixels": picture(n), "digit": n})).json()
                for n in range(2)
            ]
            while "loss" not in await events.get():
                pass
            await client.delete(f"/corrections/{second['name']}")
            last = await _published(events, 2)
            assert [list(last[each]) for each in ("learnt", "undone")] == [
                [first["name"]], [second["name"]],
            ]  # fmt: skip
        assert app.state.learner.step == 5 + 12


@pytest.mark.asyncio
async def test_what_was_learnt_too_long_ago_to_be_undone_is_not_told_as_undone(tmp_path):
    """Also after a restart, which forgets the states to which an undoing returns."""
    async with serving(tmp_path, first_steps=5) as (app, client):
        names = []
        with app.state.learner.watching() as events:
            for digit in range(UNDONE + 1):
                body = {"pixels": picture(digit), "digit": digit % 10}
                names.append((await client.post("/correct", json=body)).json()["name"])
            last = await _published(events, UNDONE + 1)
            assert (list(last["learnt"]), list(last["undone"])) == (names[1:], [])
            # One that is being learnt is none of the undone ones.
            answer = await client.post("/correct", json={"pixels": picture(3), "digit": 3})
            while "loss" not in await events.get():
                pass
            assert answer.json()["name"] not in app.state.learner.story()["undone"]
            await _published(events)
            await client.delete(f"/corrections/{names[-1]}")
            assert list((await _published(events))["undone"]) == [names[-1]]
    async with serving(tmp_path, first_steps=5) as (app, client):
        story = app.state.learner.story()
        assert (list(story["learnt"]), list(story["undone"])) == ([], [names[-1]])
        assert (await client.delete(f"/corrections/{names[-2]}")).status_code == 404


def test_the_lag_of_a_second_is_forgotten_after_a_second():
    """Also where the loop is so late that few looks are made in a second."""
    lag = Lag()
    lag.note(100.0, 0.6)
    lag.note(100.9, 0.3)
    assert lag.worst == 0.6
    lag.note(101.2, 0.1)
    assert lag.worst == 0.3
    lag.note(102.5, 0.0)
    assert lag.worst == 0.0


@pytest.mark.asyncio
async def test_the_lag_is_by_how_much_the_loop_was_held_beyond_what_was_due():
    loop = asyncio.get_running_loop()
    async with Lag() as lag:
        await asyncio.sleep(0)
        held = loop.time() + 5 * INTERVAL
        while loop.time() < held:
            pass
        # One turn in which the timer is due, and one for who waits for it.
        for _ in range(3):
            await asyncio.sleep(0)
        # A clock may count in milliseconds, and lose the last digit of a sum.
        assert lag.worst > 3.9 * INTERVAL
