"""The client's side, over httpx: what a training loop awaits."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Self

import httpx
import numpy as np


class TrainingError(Exception):
    """The service has refused a request; `status` is HTTP's."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status


class TrainingClient:
    """A tenant's connection.

    Args:
        url: where the service is.
        token: the tenant's.
        retries: how often a request is sent again that came at a bad time (429, 503).
        transport: another transport of httpx's, for tests.
    """

    def __init__(self, url: str, token: str, *, retries: int = 5, transport: Any = None) -> None:
        self._retries = retries
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=60.0,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def forward_backward(self, inputs: Any, labels: Any) -> dict[str, Any]:
        """Add a batch's gradients to those that wait for the next step.

        Args:
            inputs: rows of 64 numbers, at most 4,096.
            labels: the class of each.

        Returns:
            The mean `loss`, and how many of the `rows` were `right`.
        """
        classes = np.asarray(labels).tolist()
        return await self._post("forward_backward", {"inputs": _packed(inputs), "labels": classes})

    async def optim_step(self, lr: float = 1e-2) -> int:
        """Take a step by all gradients since the last one; returns the number of steps."""
        return (await self._post("optim_step", {"lr": lr}))["steps"]

    async def predict(self, inputs: Any) -> list[int]:
        """The likeliest class of each row."""
        return (await self._post("predict", {"inputs": _packed(inputs)}))["classes"]

    async def reset(self) -> None:
        """Forget everything that was learnt."""
        await self._post("reset", None)

    async def status(self) -> dict[str, Any]:
        """The tenant's name, and the numbers of its passes and steps."""
        return _checked(await self._http.get("/v1/status"))

    async def _post(self, what: str, body: Any) -> Any:
        for left in reversed(range(self._retries + 1)):
            answer = await self._http.post(f"/v1/{what}", json=body)
            if answer.status_code not in {429, 503} or not left:
                break
            await asyncio.sleep(float(answer.headers.get("Retry-After", "1")))
        return _checked(answer)


def _packed(rows: Any) -> str:
    """Rows of numbers in the service's format: little-endian float32 in base64."""
    return base64.b64encode(np.asarray(rows, "<f4").tobytes()).decode()


def _checked(answer: httpx.Response) -> Any:
    if answer.is_success:
        return answer.json()
    try:
        detail = answer.json().get("detail")
    except ValueError:
        detail = answer.text[:200]
    raise TrainingError(answer.status_code, detail)
