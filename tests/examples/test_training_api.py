"""The training API: what a tenant can do, what it can't, and that nobody disturbs anybody."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="FastAPI is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

import asyncgrad as ag  # noqa: E402
from asyncgrad.core.modes import current  # noqa: E402
from examples.training_api import script, tenants  # noqa: E402
from examples.training_api.app import create_app  # noqa: E402
from examples.training_api.client import TrainingClient, TrainingError  # noqa: E402
from examples.training_api.model import Adapter, Base  # noqa: E402
from examples.training_api.tenants import Plan, Tenants  # noqa: E402

pytestmark = pytest.mark.asyncio
TOKENS = {"ann": "a" * 20, "bob": "b" * 20, "../../etc/passwd": "c" * 20}


def plans(**changes):
    return {name: Plan(token=token, **changes) for name, token in TOKENS.items()}


def client(app, token, **options):
    return TrainingClient("http://test", token, transport=httpx.ASGITransport(app=app), **options)


def batch(n=16, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, 64), np.float32), rng.integers(0, 10, n)


def packed(inputs) -> str:
    return base64.b64encode(np.asarray(inputs, "<f4").tobytes()).decode()


async def test_a_tenant_trains_and_predicts_by_script(monkeypatch, capsys):
    app = create_app(plans())
    monkeypatch.setattr(
        script, "TrainingClient",
        lambda url, token: client(app, token),
    )  # fmt: skip
    assert await script.train(TOKENS["ann"]) >= 0.85
    assert "test accuracy" in capsys.readouterr().out


async def test_gradients_add_up_until_the_step_and_are_what_one_pass_gives():
    app = create_app(plans())
    inputs, labels = batch(32)
    reference = Adapter(Base(), 0)
    # The same weights as the tenant's, by its hash.
    tenant = Tenants(plans()).find(TOKENS["ann"])
    reference.load_state_dict(tenant.training.trainer.adapter.state_dict())
    optimizer = ag.optim.Adam(reference.parameters(), lr=1e-2)
    async with client(app, TOKENS["ann"]) as ann:
        losses = await asyncio.gather(*(
            ann.forward_backward(inputs[part], labels[part])
            for part in (slice(0, 16), slice(16, 32))
        ))  # fmt: skip
        assert await ann.optim_step(lr=1e-2) == 1
        predicted = await ann.predict(inputs)
    parts = [
        ag.nn.functional.cross_entropy(reference(ag.tensor(inputs[p])), ag.tensor(labels[p]))
        for p in (slice(0, 16), slice(16, 32))
    ]
    assert [loss["loss"] for loss in losses] == pytest.approx([p.item() for p in parts], rel=1e-4)
    await (parts[0] + parts[1]).backward()
    optimizer.step()
    with ag.no_grad():
        assert predicted == reference(ag.tensor(inputs)).argmax(dim=-1).tolist()


async def test_all_processes_have_the_same_base_whatever_draws_numbers_meanwhile(monkeypatch):
    expected = [p.tolist() for p in Base().parameters()]
    linear = ag.nn.Linear

    def beside_others(*sizes):
        ag.rand(1)
        return linear(*sizes)

    monkeypatch.setattr(ag.nn, "Linear", beside_others)
    assert [p.tolist() for p in Base().parameters()] == expected


async def test_tenants_neither_see_nor_change_one_another():
    app = create_app(plans())
    inputs, labels = batch()
    async with client(app, TOKENS["ann"]) as ann, client(app, TOKENS["bob"]) as bob:
        before = await bob.predict(inputs)
        for _ in range(20):
            await ann.forward_backward(inputs, labels)
            await ann.optim_step(lr=0.05)
        assert await bob.predict(inputs) == before
        assert (await bob.status())["steps"] == 0
        assert (await ann.status()) == {"tenant": "ann", "passes": 20, "steps": 20}
        learnt = await ann.predict(inputs)
        assert np.mean(np.array(learnt) == labels) > 0.6
        await ann.reset()
        assert (await ann.status())["steps"] == 0


@pytest.mark.parametrize("token", ["", "a" * 19, "a" * 21, "A" * 20, "\u00e9" * 20])
async def test_only_a_tenants_token_opens(token):
    transport = httpx.ASGITransport(app=create_app(plans()))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        headers = {"Authorization": f"Bearer {token}".encode()}
        for method, path in (("GET", "status"), ("POST", "optim_step"), ("POST", "reset")):
            answer = await http.request(method, f"/v1/{path}", headers=headers, json={})
            assert answer.status_code in {401, 403}


async def test_a_name_is_never_a_path_and_a_token_never_short():
    app = create_app(plans())
    async with client(app, TOKENS["../../etc/passwd"]) as strange:
        assert (await strange.status())["tenant"] == "../../etc/passwd"
        await strange.forward_backward(*batch())
    with pytest.raises(ValueError, match="16 characters"):
        Plan(token="short")
    with pytest.raises(ValueError, match="same token"):
        create_app({"ann": Plan(token=TOKENS["ann"]), "bob": Plan(token=TOKENS["ann"])})


async def test_nonsense_is_refused_and_adds_nothing():
    app = create_app(plans())
    inputs, labels = batch(4)
    nan, infinite = inputs.copy(), inputs.copy()
    nan[0, 0], infinite[3, 63] = np.nan, -np.inf
    async with client(app, TOKENS["ann"]) as ann:
        for wrong in (
            (inputs[:, :63], labels),
            (inputs, labels[:3]),
            (inputs, labels + 100),
            (inputs[:0], labels[:0]),
            (inputs * 1e9, labels),
            (nan, labels),
            (infinite, labels),
            batch(4_097),
        ):
            with pytest.raises(TrainingError) as caught:
                await ann.forward_backward(*wrong)
            assert caught.value.status == 422
        with pytest.raises(TrainingError, match="422"):
            await ann.optim_step(lr=-1)
        assert (await ann.status()) == {"tenant": "ann", "passes": 0, "steps": 0}


async def test_a_quota_is_a_tenants_own(monkeypatch):
    # Time stands still: nothing comes back meanwhile.
    monkeypatch.setattr(tenants, "time", SimpleNamespace(monotonic=lambda: 0.0))
    app = create_app(plans(rows_per_second=10))
    async with (
        client(app, TOKENS["ann"], retries=0) as ann,
        client(app, TOKENS["bob"], retries=0) as bob,
    ):
        await ann.forward_backward(*batch(20))
        with pytest.raises(TrainingError) as caught:
            await ann.forward_backward(*batch(20))
        assert caught.value.status == 429
        await bob.forward_backward(*batch(20))


async def test_more_rows_than_a_burst_are_a_debt_and_not_refused_for_ever(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(tenants, "time", SimpleNamespace(monotonic=lambda: clock.now))
    app = create_app(plans(rows_per_second=10))
    async with client(app, TOKENS["ann"], retries=0) as ann:
        await ann.predict(batch(50)[0])
        clock.now = 2.5  # 5 rows are missing
        with pytest.raises(TrainingError, match=r"0\.60 seconds"):
            await ann.predict(batch(1)[0])
        clock.now = 3.1
        await ann.predict(batch(1)[0])


async def test_rows_that_are_not_computed_are_not_charged(monkeypatch):
    """A crowd is told to come later, and finds then what it was granted."""
    monkeypatch.setattr(tenants, "time", SimpleNamespace(monotonic=lambda: 0.0))
    app = create_app(plans(rows_per_second=10, concurrent=1, max_waiting=0))
    entered, leave = asyncio.Event(), asyncio.Event()
    offload = ag.offload

    async def slow(*args):
        entered.set()
        await leave.wait()
        return await offload(*args)

    monkeypatch.setattr(ag, "offload", slow)
    async with client(app, TOKENS["ann"], retries=0) as ann:
        first = asyncio.ensure_future(ann.predict(batch(10)[0]))
        await entered.wait()
        for _ in range(3):
            with pytest.raises(TrainingError, match="503"):
                await ann.predict(batch(10)[0])
        leave.set()
        await first
        await ann.predict(batch(10)[0])
        with pytest.raises(TrainingError, match="429"):
            await ann.predict(batch(1)[0])


async def asked(app, path, body, gone) -> list[dict]:
    """What Ann is sent, who is there until `gone` is set."""
    sent = []
    body = [{
        "type": "http.request", "more_body": False,
        "body": httpx.Request("POST", "http://test", json=body).content,
    }]  # fmt: skip

    async def receive():
        if body:
            return body.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": b"",
        "query_string": b"", "scheme": "http", "http_version": "1.1", "server": ("test", 80),
        "client": ("test", 1), "root_path": "",
        "headers": [
            (b"authorization", f"Bearer {TOKENS['ann']}".encode()),
            (b"content-type", b"application/json"),
        ],
    }  # fmt: skip
    await app(scope, receive, send)
    return sent


async def test_a_pass_ends_when_its_client_goes_and_leaves_no_gradient(monkeypatch):
    app = create_app(plans())
    started, gone = asyncio.Event(), asyncio.Event()
    inputs, labels = batch()
    plain = ag.nn.functional.cross_entropy

    def slow(*args):
        loss = plain(*args)

        async def wait(gradient):
            started.set()
            await asyncio.Event().wait()

        loss.register_hook(wait)
        return loss

    monkeypatch.setattr(ag.nn.functional, "cross_entropy", slow)
    body = {"inputs": packed(inputs), "labels": labels.tolist()}
    running = asyncio.ensure_future(asked(app, "/v1/forward_backward", body, gone))
    await started.wait()
    gone.set()
    assert (await running)[0]["status"] == 499
    assert ag.engine().statistics().in_flight == 0
    monkeypatch.setattr(ag.nn.functional, "cross_entropy", plain)
    async with client(app, TOKENS["ann"]) as ann:
        assert (await ann.status())["passes"] == 0
        await ann.forward_backward(inputs, labels)
        assert await ann.optim_step() == 1


async def test_a_pass_that_is_cancelled_after_its_commit_is_answered_as_what_it_is(monkeypatch):
    """Told that it failed, a client would send its batch again, which would then count twice."""
    committing, go_on = asyncio.Event(), asyncio.Event()
    plain = ag.nn.functional.cross_entropy

    class Slow:
        async def prepare(self, gradients):
            pass

        async def commit(self):
            committing.set()
            await go_on.wait()

        async def abort(self):
            pass

    def joined(*args):
        loss = plain(*args)
        loss.register_hook(lambda gradient: ag.autograd.graph.join(Slow()))
        return loss

    monkeypatch.setattr(ag.nn.functional, "cross_entropy", joined)
    app, gone = create_app(plans()), asyncio.Event()
    inputs, labels = batch()
    body = {"inputs": packed(inputs), "labels": labels.tolist()}
    running = asyncio.ensure_future(asked(app, "/v1/forward_backward", body, gone))
    await committing.wait()
    gone.set()
    for _ in range(20):
        await asyncio.sleep(0)
    go_on.set()
    assert (await running)[0]["status"] == 200
    async with client(app, TOKENS["ann"]) as ann:
        assert (await ann.status())["passes"] == 1


async def test_a_step_that_was_begun_is_taken_once_though_its_client_goes(monkeypatch):
    app = create_app(plans())
    started, gone, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    plain, taken = ag.optim.Adam.step_async, []

    async def slow(self):
        started.set()
        await go_on.wait()
        taken.append(
            sum(parameter.grad is not None for parameter in self.param_groups[0]["params"])
        )
        return await plain(self)

    monkeypatch.setattr(ag.optim.Adam, "step_async", slow)
    async with client(app, TOKENS["ann"]) as ann:
        await ann.forward_backward(*batch())
        running = asyncio.ensure_future(asked(app, "/v1/optim_step", {}, gone))
        await started.wait()
        gone.set()
        waiting = asyncio.ensure_future(ann.optim_step())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not running.done()
        go_on.set()
        await running
        assert await waiting == 2
    # The second step had no gradients left to go by.
    assert taken[0] > 0
    assert taken[1] == 0


async def test_a_tenants_passes_are_as_urgent_as_its_plan_says(monkeypatch):
    seen = []
    plain = ag.nn.functional.cross_entropy

    def watched(*args):
        seen.append(current().priority)
        return plain(*args)

    monkeypatch.setattr(ag.nn.functional, "cross_entropy", watched)
    app = create_app({
        "ann": Plan(token=TOKENS["ann"], priority=5), "bob": Plan(token=TOKENS["bob"], priority=-5),
    })  # fmt: skip
    async with client(app, TOKENS["ann"]) as ann, client(app, TOKENS["bob"]) as bob:
        await ann.forward_backward(*batch())
        await bob.forward_backward(*batch())
    assert seen == [5, -5]


async def test_what_is_no_data_or_too_much_of_it_is_refused():
    app = create_app(plans())
    inputs, labels = batch(1)
    good = {"inputs": packed(inputs), "labels": labels.tolist()}
    headers = {"Authorization": f"Bearer {TOKENS['ann']}"}
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://test", headers=headers
    ) as http:
        for content, status in (
            (json.dumps(good | {"code": "print(1)"}).encode(), 422),
            (json.dumps(good | {"inputs": "__import__('os')"}).encode(), 422),
            (json.dumps(good | {"labels": [True, 1.5]}).encode(), 422),
            (json.dumps(good | {"inputs": [[0.0] * 64]}).encode(), 422),
            (json.dumps(good | {"inputs": good["inputs"][:-4]}).encode(), 422),
            (json.dumps(good | {"inputs": "\u00e9" * 344}).encode(), 422),
            (json.dumps(good | {"labels": [0] * 5_000}).encode(), 422),
            (pickle.dumps(good), 422),
            (b"[" * 100_000, 422),
            (b" " * 10_000_000, 413),
        ):
            answer = await http.post("/v1/forward_backward", content=content)
            assert answer.status_code == status, content[:50]
            assert len(answer.content) < 10_000
        answer = await http.get("/v1/../../etc/passwd")
        assert answer.status_code == 404
        assert (await http.get("/v1/status")).json()["passes"] == 0


async def test_one_tenants_crowd_is_refused_and_another_is_served(monkeypatch):
    app = create_app(plans(concurrent=1, max_waiting=1))
    entered, leave = asyncio.Event(), asyncio.Event()
    offload = ag.offload

    async def slow(function, *args):
        if len(args[0]) == 3:
            entered.set()
            await leave.wait()
        return await offload(function, *args)

    monkeypatch.setattr(ag, "offload", slow)
    async with (
        client(app, TOKENS["ann"], retries=0) as ann,
        client(app, TOKENS["bob"], retries=0) as bob,
    ):
        first = asyncio.ensure_future(ann.forward_backward(*batch(3)))
        await entered.wait()
        crowd = [asyncio.ensure_future(ann.forward_backward(*batch(2))) for _ in range(3)]
        refused, _ = await asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED)
        assert {each.exception().status for each in refused} == {503}
        answer = await ann._http.post("/v1/reset")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        await bob.forward_backward(*batch(2))
        leave.set()
        await first
        ended = await asyncio.gather(*crowd, return_exceptions=True)
        assert sum(isinstance(each, dict) for each in ended) == 1


async def test_of_somebody_without_a_token_nothing_is_read():
    read = 0

    async def endless():
        nonlocal read
        while True:
            read += 1
            yield b"x"

    transport = httpx.ASGITransport(app=create_app(plans()))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        for headers in ({}, {"Authorization": f"Bearer {'x' * 20}"}):
            answer = await http.post("/v1/predict", content=endless(), headers=headers)
            assert answer.status_code == 401
    assert read == 0


async def test_the_largest_batch_is_taken():
    app = create_app(plans())
    inputs, labels = batch(4_096)
    async with client(app, TOKENS["ann"]) as ann:
        answer = await ann.forward_backward(inputs, labels)
        assert answer["rows"] == 4_096
        assert len(await ann.predict(inputs.tolist())) == 4_096
