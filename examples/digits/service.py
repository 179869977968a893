"""The service: lines of JSON over TCP, answered from the newest complete weights.

    {"id": 1, "pixels": [64 integers from 0 to 16]}  ->  {"id": 1, "digit": 7, "step": 12}

A line that is no such request is answered with {"error": "..."}, and the connection stays open.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from examples.digits.data import GREY_LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.digits.variants import Variant


class Service:
    """Answers requests on a loopback port while the weights are being trained.

    It owns two copies of the model. One answers; the other takes the new weights, in a thread, and
    then they change places in one assignment on the event loop: no request, which is answered
    without an await, ever sees the weights of two steps.
    """

    def __init__(self, variant: Variant, make_model: Callable[[], Any]) -> None:
        self._variant = variant
        self._serving, self._spare = make_model(), make_model()
        #: The step of the training from which the answering weights come.
        self.step = 0
        self.answered = 0
        self.port = 0
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._connections.values():
            writer.close()
        await asyncio.gather(*self._connections)
        await self._server.wait_closed()

    async def publish(self, model: Any, step: int) -> None:
        """Answer from now on with the weights that the model has now."""
        await self._variant.offload(self._spare.load_state_dict, model.state_dict())
        self._serving, self._spare, self.step = self._spare, self._serving, step

    def _answer(self, line: bytes) -> dict[str, Any]:
        """Classify one image. There is no await in here: see the class."""
        try:
            request = json.loads(line)
            pixels = np.array(request["pixels"], dtype=np.float32).reshape(1, 64) / GREY_LEVELS
        except (ValueError, TypeError, KeyError) as error:
            return {"error": f"expected {{'id': ..., 'pixels': [64 numbers]}}: {error!r}"}
        library = self._variant.library
        with library.no_grad():
            digit = self._serving(library.from_numpy(pixels)).argmax(1).item()
        self.answered += 1
        return {"id": request.get("id"), "digit": digit, "step": self.step}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, in their order."""
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):  # the client left, or sent a line without an end
            pass
        finally:
            writer.close()
            del self._connections[task]
