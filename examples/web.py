"""What the examples' web services share: a bound on bodies, and clients that go away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse

if TYPE_CHECKING:
    from fastapi import Request


async def disconnection(request: Request) -> None:
    """Wait until the client of a request, whose body has been read, has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Limited:
    """Refuses bodies that are too long, before anybody reads them."""

    def __init__(self, app: Any, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """An ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read = 0
        refusal = JSONResponse({"detail": f"at most {self._most} bytes are taken"}, 413)
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value) > self._most):
                await refusal(scope, receive, send)
                return

        async def counted() -> Any:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                raise HTTPException(413, f"at most {self._most} bytes are taken")
            return message

        await self._app(scope, counted, send)
