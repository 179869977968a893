"""Clients that mean no good, or have gone: they get a 4xx, and nobody else notices."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import socket
import struct
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="FastAPI is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")
uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")

from programs import service  # noqa: E402

from examples import web  # noqa: E402
from examples.web import (  # noqa: E402
    CHUNK_BYTES,
    CHUNKS,
    WAITING,
    Frames,
    Limited,
    Patient,
    add_host_options,
    allowed_hosts,
)

GOOD = {"pixels": [0.25, 0.5] * 32}
#: Connections that ask for nothing, or for half of it; each is a file in both processes.
HALF_OPEN = 3_000
CHUNKED = b"Transfer-Encoding: chunked"
LINGER_NOT = struct.pack("ii", 1, 0)


def resident(process) -> int:
    """A process's memory, in bytes."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        pytest.skip("resident memory is read from /proc")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


@contextmanager
def many_files(count: int):
    """Be allowed to have so many open, or skip."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"only {hard} open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def head(path: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def test_half_open_connections_cancelled_requests_and_huge_bodies_disturb_nobody(tmp_path):
    with many_files(HALF_OPEN + 500), service(tmp_path) as (process, port), ExitStack() as stack:

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=100))

        def others_are_served() -> None:
            for path in ("predict", "explain"):
                answer = httpx.post(f"http://127.0.0.1:{port}/{path}", json=GOOD, timeout=100)
                assert answer.status_code == 200

        def passes_run() -> bool:
            metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=100).text
            return "asyncgrad_engine_in_flight 0.0" not in metrics

        others_are_served()
        before = resident(process)
        half = [b"", b"P", b"POST /predict HTTP/1.1\r\nHost: te"]
        sockets = []
        for number in range(HALF_OPEN):
            sockets.append(connect())
            sockets[-1].sendall(half[number % len(half)])
            if number % 500 == 0:
                others_are_served()
        others_are_served()
        # The oldest have gone, for the sake of the others.
        for oldest in sockets[: HALF_OPEN - WAITING - 100]:
            assert oldest.recv(100).startswith(b"HTTP/1.1 408 ")

        slow = connect()
        slow.sendall(head("/predict", 5_000) + b'{"pixels": [')
        body = json.dumps(GOOD).encode()
        for _ in range(50):
            going = connect()
            going.sendall(head("/explain", len(body)) + body)
            # Gone without a word.
            going.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            going.close()
        others_are_served()

        huge = connect()
        huge.sendall(head("/predict", 100_000_000))
        assert huge.recv(100).startswith(b"HTTP/1.1 413 ")
        endless = connect()
        endless.sendall(head("/predict", 0).replace(b"Content-Length: 0", CHUNKED))
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        try:
            for _ in range(100_000_000 // len(chunk)):
                endless.sendall(chunk)
        except OSError:
            pass  # refused, and closed at once
        else:
            assert endless.recv(100).startswith(b"HTTP/1.1 413 ")
        others_are_served()
        assert resident(process) - before < 100_000_000
        while passes_run():
            pass
        assert process.poll() is None


def test_a_page_too_many_is_told_to_come_later(tmp_path, monkeypatch):
    from examples.service import app as module

    monkeypatch.setattr(module, "MAX_WATCHERS", 0)
    app = module.create_app(module.Settings(tmp_path / "w.safetensors", first_steps=1))

    async def watch():
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.get("/events")

    answer = asyncio.run(watch())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


@asynccontextmanager
async def patiently(application):
    """An application with a server that has little patience; its port."""
    config = uvicorn.Config(application, http=Patient, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # Not `serve`: signals are not this test's.
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listening])
        yield listening.getsockname()[1]
        await server.shutdown(sockets=[listening])


async def echo(scope, receive, send):
    """Answers with a request's body, once that has come."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    length = str(len(body)).encode()
    start = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def hasty(scope, receive, send):
    """Answers before anybody has read the request's body."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.asyncio
@pytest.mark.parametrize("application", [echo, hasty])
async def test_a_body_in_tiny_chunks_is_refused_before_it_holds_the_loop(monkeypatch, application):
    """A chunk takes the loop as long whatever is in it: counted, for clocks say nothing."""
    events = []

    def counting(self):
        events.append(self.our_state)
        return next_event(self)

    next_event = Frames.next_event
    monkeypatch.setattr(Frames, "next_event", counting)
    problems = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    async with patiently(application) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: test\r\n" + CHUNKED + b"\r\n\r\n")
        if application is hasty:
            await reader.readuntil(b"\r\n\r\n")
        writer.write(b"1\r\nx\r\n" * 50_000)
        answer = b""
        # What was not read any more resets the connection.
        with suppress(ConnectionResetError):
            answer = await reader.read()
        writer.close()
    if application is echo and answer:
        assert answer.startswith(b"HTTP/1.1 400 ")
    assert len(events) < 2 * CHUNKS
    assert problems == []


@pytest.mark.asyncio
async def test_bodies_in_chunks_of_some_size_are_taken():
    body = b"x" * 64 * CHUNK_BYTES
    chunk = b"%x\r\n" % CHUNK_BYTES + body[:CHUNK_BYTES] + b"\r\n"
    async with patiently(echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        # The second request on a connection begins anew.
        for _ in range(2):
            writer.write(b"POST / HTTP/1.1\r\nHost: test\r\n" + CHUNKED + b"\r\n\r\n")
            writer.write(b"1\r\ny\r\n" * (CHUNKS - 1) + chunk * 64 + b"0\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(CHUNKS - 1 + len(body)) == b"y" * (CHUNKS - 1) + body
        writer.close()


@pytest.mark.parametrize(
    ("arguments", "host", "status"),
    [
        ([], "localhost:8000", 200),
        ([], "127.0.0.1", 200),
        ([], "evil.test", 400),
        (["--host", "192.0.2.1"], "192.0.2.1:8000", 200),
        (["--host", "0.0.0.0"], "digits.test", 200),
        (["--host", "0.0.0.0", "--allow-host", "digits.test"], "digits.test", 200),
        (["--host", "0.0.0.0", "--allow-host", "digits.test"], "evil.test", 400),
    ],
)
def test_a_service_answers_under_its_own_names_alone(tmp_path, arguments, host, status):
    """A page whose name points here could else read what is answered."""
    from examples.service.app import Settings
    from examples.service.app import create_app as digits
    from examples.training_api.app import create_app as training

    parser = argparse.ArgumentParser()
    add_host_options(parser, 8000)
    hosts = tuple(allowed_hosts(parser.parse_args(arguments)))

    async def ask(app) -> int:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return (await client.get("/healthz")).status_code

    for app in (digits(Settings(tmp_path / "w.safetensors", hosts=hosts)), training({}, hosts)):
        assert asyncio.run(ask(app)) == status


@pytest.mark.asyncio
async def test_who_does_not_say_what_it_wants_is_refused_in_time(monkeypatch):
    """Nobody else is there: whatever the machine does meanwhile, the refusal is what comes next."""
    monkeypatch.setattr(Patient, "patience", 0.01)
    async with patiently(echo) as port:
        for said in (b"", b"GET / HT"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
            writer.close()
            await writer.wait_closed()
        assert not web.Patient.waiting


@pytest.mark.asyncio
async def test_a_body_that_does_not_come_does_not_keep_a_server_that_is_told_to_stop(monkeypatch):
    monkeypatch.setattr(web, "LAST", 0.01)
    begun, told = asyncio.Event(), []

    async def application(scope, receive, send):
        told.append(await receive())
        begun.set()
        told.append(await receive())

    async with patiently(application) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head("/", 10) + b"x")
        await begun.wait()
    assert await reader.read() == b""
    assert [one["type"] for one in told] == ["http.request", "http.disconnect"]
    writer.close()


@pytest.mark.asyncio
async def test_who_asks_for_a_websocket_is_answered_as_others_are():
    """Handed to another protocol, its connection would be refused later as one that waits."""
    async with patiently(echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert not Patient.waiting
        writer.close()
        await writer.wait_closed()


@pytest.mark.asyncio
async def test_who_does_not_take_the_answer_is_left(monkeypatch):
    ended = asyncio.Event()
    chunk, chunks = bytes(1 << 20), 64

    async def generous(scope, receive, send):
        # Not before: on a busy machine the request itself takes longer to come.
        monkeypatch.setattr(Patient, "patience", 0.01)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(chunks):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        ended.set()

    async with patiently(generous) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        # Nothing more is sent to it, so this comes to its end.
        await ended.wait()
        taken = 0
        with suppress(ConnectionResetError):
            while some := await reader.read(len(chunk)):
                taken += len(some)
        assert taken < chunks * len(chunk)
        writer.close()


@pytest.mark.asyncio
async def test_a_body_that_does_not_come_is_refused_in_time_and_a_late_goodbye_is_not():
    sent = []

    async def send(message):
        sent.append(message)

    async def read(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await receive()

    events = [{"type": "http.request", "body": b"x", "more_body": True}]

    async def stalls():
        if not events:
            await asyncio.Event().wait()
        return events.pop()

    scope = {"type": "http", "headers": []}
    with pytest.raises(web.HTTPException) as caught:
        await Limited(read, 10, patience=0.01)(scope, stalls, send)
    assert caught.value.status_code == 408

    gone = asyncio.Event()

    async def goes_late():
        if not gone.is_set():
            gone.set()
            return {"type": "http.request", "body": b"x"}
        # Beyond what the patience is.
        await asyncio.sleep(0.02)
        return {"type": "http.disconnect"}

    await Limited(read, 10, patience=0.01)(scope, goes_late, send)
    assert sent == []
