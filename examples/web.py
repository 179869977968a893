"""What the examples' web services share: bounds, patience, and clients that go away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import anyio
from fastapi import HTTPException
from fastapi.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

    from fastapi import Request

#: Seconds in which a client has to have said what it wants: the head, and then the body.
PATIENCE = 10.0
#: Connections that may be about to say it; the one that has waited longest goes for the next.
WAITING = 1_000


async def disconnection(request: Request) -> None:
    """Wait until the client of a request, whose body has been read, has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Limited:
    """Refuses bodies that are too long, before anybody reads them, and those that take too long.

    Args:
        app: the ASGI application.
        most: how many bytes are taken.
        patience: in how many seconds they have to come.
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
                # What comes now is that the client goes, whenever that is.
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


class Patient(H11Protocol):
    """Uvicorn's protocol, for clients that open connections and ask for nothing, or for half of it.

    A connection has so many seconds for the head of its first request, and for that of each further
    one from its first byte on. Too many that wait make the oldest of them go. Between two requests
    uvicorn's `timeout_keep_alive` counts. Who does not take what is sent has as long, too.
    """

    patience: ClassVar[float] = PATIENCE
    #: Those that have not asked yet, the oldest first.
    waiting: ClassVar[dict[Patient, asyncio.TimerHandle]] = {}
    _full: asyncio.TimerHandle | None = None

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

    def pause_writing(self) -> None:
        """The client has left more than a little unread: begin to wait for it."""
        super().pause_writing()
        self._full = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read."""
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
