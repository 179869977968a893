"""What the web services of the examples share: host names, limits, timeouts, disconnections."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

import anyio
import h11
import uvicorn
from fastapi import HTTPException
from fastapi.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from examples.options import whole

if TYPE_CHECKING:
    import argparse
    import asyncio

    from fastapi import Request

#: Seconds that a client has for a request's head, and then for its body.
PATIENCE = 10.0
#: Seconds that are left for a body when the server is told to stop.
LAST = 1.0
#: The most connections without a complete request; the oldest of them makes room for another.
WAITING = 1_000
#: A body may have so many chunks, and another one for each so many bytes. Decoding a chunk takes
#: 40 us of the loop, whether it holds one byte or 64 KB.
CHUNKS, CHUNK_BYTES = 32, 512
#: The names by which this machine calls itself.
LOCAL = ("localhost", "127.0.0.1", "[::1]")


def add_host_options(parser: argparse.ArgumentParser, port: int) -> None:
    """The options that say where a service listens, and under which names it answers."""
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=whole(1, 65535), default=port)
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name in a request's Host header that is answered; may be repeated",
    )


def allowed_hosts(args: argparse.Namespace) -> list[str]:
    """The names under which a service answers.

    A page from elsewhere can give its own name this machine's address, and would then be allowed
    to read what a service on it answers (DNS rebinding). Its requests carry that name.
    """
    if args.host in {"0.0.0.0", "::"} and not args.allow_host:
        return ["*"]
    return [*LOCAL, args.host, *args.allow_host]


def serve(app: Any, args: argparse.Namespace, welcome: str, **options: Any) -> int:
    """Serve an application until Ctrl-C; returns the exit status.

    Args:
        app: what uvicorn takes: an application, or where to import it from.
        args: with `host` and `port`.
        welcome: printed when the service answers, not before.
        options: further ones of uvicorn's.
    """
    try:
        # An error is reported in one line here; from uvicorn it would come with a traceback.
        socket.create_server((args.host, args.port), family=_family(args.host)).close()
    except OSError as error:
        print(
            f"can't listen on {args.host}:{args.port}: {error.strerror or error}", file=sys.stderr
        )
        if error.errno in {errno.EADDRINUSE, errno.EACCES}:
            other = args.port + 1 if 1024 <= args.port < 65535 else 8000
            print(f"Another port is chosen by --port, for example --port {other}.",
                  file=sys.stderr)  # fmt: skip
        return 1
    threading.Thread(target=_say_when_it_answers, args=(args, welcome), daemon=True).start()
    uvicorn.run(
        app,
        host=args.host,
        port=args.port,
        log_level="warning",
        # `Patient` closes slow and half-open connections; more than the limit are refused.
        http=Patient,
        # Longer than clients keep idle connections, httpx for 5 seconds: a request that is sent
        # while its connection is being closed is lost.
        timeout_keep_alive=10,
        limit_concurrency=WAITING + 1_000,
        **options,
    )
    return 0


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _say_when_it_answers(args: argparse.Namespace, welcome: str) -> None:
    """Print a text when a connection is taken: uvicorn listens when the application has started."""
    while True:
        with contextlib.suppress(OSError), socket.socket(_family(args.host)) as client:
            client.connect((args.host, args.port))
            break
        time.sleep(0.05)
    print(welcome, flush=True)


async def disconnection(request: Request) -> None:
    """Wait until the client of a request, whose body has been read, has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Limited:
    """Refuses bodies that are too long, before they are read, and bodies that come too slowly.

    Args:
        app: the ASGI application.
        most: the largest number of bytes.
        patience: the seconds that a body may take.
    """

    def __init__(self, app: Any, most: int, patience: float = PATIENCE) -> None:
        self._app = app
        self._most = most
        self._patience = patience

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """An ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read, complete = 0, False
        deadline = anyio.current_time() + self._patience
        refusal = JSONResponse({"detail": f"at most {self._most} bytes are taken"}, 413)
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value) > self._most):
                await refusal(scope, receive, send)
                return

        async def counted() -> Any:
            nonlocal read, complete
            if complete:
                # The only message after the body is the disconnection, which has no deadline.
                return await receive()
            message = None
            with anyio.CancelScope(deadline=deadline):
                message = await receive()
            if message is None:
                raise HTTPException(408, f"the body has not come within {self._patience} seconds")
            complete = not message.get("more_body", False)
            read += len(message.get("body", b""))
            if read > self._most:
                raise HTTPException(413, f"at most {self._most} bytes are taken")
            return message

        await self._app(scope, counted, send)


class Frames(h11.Connection):
    """An HTTP connection that takes no body in tiny chunks: see `CHUNKS`."""

    _chunks = 0
    _bytes = 0

    def next_event(self) -> Any:
        """What comes next in what was received.

        Raises:
            RemoteProtocolError: if it is no HTTP, or a chunk too many.
        """
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._bytes += len(event.data)
            if self._chunks > CHUNKS + self._bytes // CHUNK_BYTES:
                raise h11.RemoteProtocolError(f"{self._chunks} chunks of {self._bytes} bytes")
        return event


class Patient(H11Protocol):
    """Uvicorn's protocol with timeouts for clients that send no request, or only a part of one.

    A connection has `patience` seconds for the head of its first request, and for the head of each
    further one from its first byte on. If too many connections wait for a head, the oldest of them
    is closed. Between two requests uvicorn's `timeout_keep_alive` holds. A client that does not
    read what is sent to it has `patience` seconds, too.
    """

    patience: ClassVar[float] = PATIENCE
    #: The connections that have sent no complete head yet, the oldest first.
    waiting: ClassVar[dict[Patient, asyncio.TimerHandle]] = {}
    _full: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = Frames(h11.SERVER)

    def _should_upgrade(self) -> bool:
        # A connection that became a WebSocket would be another protocol's, and still wait here.
        return False

    def send_400_response(self, msg: str) -> None:
        """Refuse what was sent, unless it has been answered already, and hang up."""
        cycle = self.cycle
        if cycle is not None:
            # Tell the application that its client has gone.
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait no longer if this was the rest of a head; begin to, if it is a part of one."""
        asked = self.cycle
        super().data_received(data)
        if self.cycle is not asked:
            self._end_wait()
        elif (asked is None or asked.response_complete) and not self.transport.is_closing():
            self._wait()

    def connection_lost(self, error: Exception | None) -> None:
        """Wait no longer."""
        self._end_wait()
        self._end_full()
        super().connection_lost(error)

    def shutdown(self) -> None:
        """Close streams when the server stops, because they would never end by themselves.

        Other responses may end within the server's grace period, and a body may come for `LAST`
        seconds.
        """
        cycle = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()
            return
        super().shutdown()
        if cycle is not None and cycle.more_body:
            self.loop.call_later(LAST, self._hang_up, cycle)

    def _hang_up(self, cycle: Any) -> None:
        if cycle.more_body:
            self.transport.close()

    def pause_writing(self) -> None:
        """Start the timeout of a client that does not read what is sent."""
        super().pause_writing()
        self._full = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """End that timeout: the client has read."""
        self._end_full()
        super().resume_writing()

    def _end_full(self) -> None:
        if self._full is not None:
            self._full.cancel()
            self._full = None

    def _wait(self) -> None:
        if self in self.waiting:
            return
        if len(self.waiting) >= WAITING:
            next(iter(self.waiting))._refuse()
        self.waiting[self] = self.loop.call_later(self.patience, self._refuse)

    def _end_wait(self) -> None:
        timer = self.waiting.pop(self, None)
        if timer is not None:
            timer.cancel()

    def _refuse(self) -> None:
        self._end_wait()
        self.transport.write(
            b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        )
        self.transport.close()
