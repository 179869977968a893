"""As much of HTTP/1.1 as a hub's page and its buttons need: small requests, one at a time.

A request line and headers of at most 8 KB within two seconds, no body; anything else is answered
with a 4xx and the connection closed. A client that does not read its answer is disconnected, too.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT = 8192
_SECONDS = 2.0
#: The most connections at once; the oldest makes room for another.
_MOST = 100


class Refused(Exception):
    """The request is answered with this status, and the connection is closed."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class Web:
    """Answers on a loopback port.

    Args:
        routes: by method and path, what gives the answer, which becomes JSON.
        port: the port; 0 for any that is free.
    """

    def __init__(self, routes: dict[tuple[str, str], Callable[[], Any]], port: int = 0) -> None:
        self._routes = routes
        self.port = port
        self.answered = 0
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._closing = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, limit=_LIMIT, backlog=64
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._server.close()
        for writer in self._connections.values():
            writer.close()
        await asyncio.gather(*self._connections)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing:  # accepted just before the port was closed
            writer.close()
            return
        there = [each for each in self._connections.values() if not each.is_closing()]
        if len(there) >= _MOST:
            there[0].close()
        task = asyncio.create_task(self._serve(reader, writer), name="connection")
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                try:
                    status, answer = HTTPStatus.OK, self._answer(await self._request(reader))
                except Refused as refused:
                    status, answer = refused.status, {"error": refused.status.phrase}
                body = json.dumps(answer).encode()
                writer.write(
                    f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n".encode()
                    + body
                )
                async with asyncio.timeout(_SECONDS):
                    await writer.drain()
                self.answered += 1
                if status is not HTTPStatus.OK:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has gone
        except TimeoutError:
            # The client does not read. A closed connection would wait for it, and so would the end.
            writer.transport.abort()
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> tuple[str, str]:
        """The method and path of the next request."""
        first = await reader.readexactly(1)  # between requests a connection may rest
        try:
            async with asyncio.timeout(_SECONDS):
                head = first + await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            raise Refused(HTTPStatus.REQUEST_TIMEOUT) from None
        except asyncio.LimitOverrunError:
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
        line, *headers = head.decode("latin-1").split("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise Refused(HTTPStatus.BAD_REQUEST)
        for header in headers:
            name, _, value = header.partition(":")
            if name.lower() == "transfer-encoding" or (
                name.lower() == "content-length" and value.strip() != "0"
            ):
                raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return words[0], words[1]

    def _answer(self, request: tuple[str, str]) -> Any:
        route = self._routes.get(request)
        if route is not None:
            return route()
        known = any(path == request[1] for _, path in self._routes)
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND)
