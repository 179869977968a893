"""The application: a tenant's passes and steps, in its turn, with its priority."""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Annotated, Any, Self

import anyio
import numpy as np
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import (
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect

import asyncgrad as ag
from asyncgrad.distributed import World
from asyncgrad.serving import Disconnected, Overloaded, unless_disconnected
from examples.training_api.cluster import Cluster
from examples.training_api.model import CLASSES, INPUTS
from examples.training_api.tenants import Plan, QuotaExceeded, Tenant, Tenants
from examples.web import Limited, disconnection

MAX_ROWS = 4_096
LARGEST = 1e6
TIMEOUT = 30.0
#: The bytes of a row of float32.
ROW = 4 * INPUTS


class Strict(BaseModel):
    """A body with these fields and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Rows(Strict):
    """Some inputs: little-endian float32 in base64, row by row.

    As lists of numbers, the largest batch would hold the loop for a tenth of a second while it is
    read. In base64 that takes some milliseconds.
    """

    inputs: Annotated[Base64Bytes, Field(min_length=ROW)]

    @field_validator("inputs")
    @classmethod
    def _whole_rows_of_numbers(cls, inputs: bytes) -> bytes:
        rows, more = divmod(len(inputs), ROW)
        if more or rows > MAX_ROWS:
            raise ValueError(
                f"{len(inputs)} bytes are not at most {MAX_ROWS} rows of {INPUTS} float32"
            )
        # `not <=` also refuses NaN.
        if not np.abs(np.frombuffer(inputs, "<f4")).max() <= LARGEST:
            raise ValueError(f"a number is none, or larger than {LARGEST:g}")
        return inputs

    def array(self) -> np.ndarray:
        """float32 (n, INPUTS)."""
        return np.frombuffer(self.inputs, "<f4").astype(np.float32).reshape(-1, INPUTS)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.inputs) // ROW


class Batch(Rows):
    """Some inputs and their classes."""

    labels: Annotated[list[Annotated[int, Field(ge=0, lt=CLASSES)]], Field(max_length=MAX_ROWS)]

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        if len(self.labels) != len(self):
            raise ValueError(f"{len(self)} rows of inputs and {len(self.labels)} labels")
        return self


class Step(Strict):
    """The learning rate of a step."""

    lr: Annotated[float, Field(gt=0, le=10)] = 1e-2


def create_app(
    plans: dict[str, Plan],
    hosts: Sequence[str] = ("*",),
    open_world: Callable[[], AbstractAsyncContextManager[World]] | None = None,
) -> FastAPI:
    """The application for some tenants, which answers under some names.

    With `open_world`, the workers of that world compute, and this process answers.
    """
    tenants = Tenants(plans)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with nullcontext() if open_world is None else open_world() as world:
            if world is not None:
                tenants.compute_on(Cluster(world))
            yield

    app = FastAPI(title="Training", docs_url=None, redoc_url=None, lifespan=lifespan)
    # Base64 has four bytes for three of the inputs; 16 bytes are for a row's label.
    app.add_middleware(Limited, most=MAX_ROWS * (ROW * 4 // 3 + 16))
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    bearer = HTTPBearer(auto_error=False)

    async def tenant_of(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
    ) -> Tenant:
        tenant = None if given is None else tenants.find(given.credentials)
        if tenant is None:
            raise HTTPException(401, "no such token", {"WWW-Authenticate": "Bearer"})
        return tenant

    Mine = Annotated[Tenant, Depends(tenant_of)]

    def sent(kind: type[Strict]) -> Any:
        """A request's body, which is read only if its token is a tenant's."""

        async def read(tenant: Mine, request: Request) -> Strict:
            return kind.model_validate_json(await request.body())

        return Depends(read)

    @app.exception_handler(Overloaded)
    async def overloaded(request: Request, error: Overloaded) -> Response:
        return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "1"})

    @app.exception_handler(TimeoutError)
    async def timed_out(request: Request, error: TimeoutError) -> Response:
        return JSONResponse({"detail": str(error)}, 504)

    @app.exception_handler(ClientDisconnect)
    @app.exception_handler(Disconnected)
    async def gone(request: Request, error: Disconnected) -> Response:
        return Response(status_code=499)

    @app.exception_handler(QuotaExceeded)
    async def too_much(request: Request, error: QuotaExceeded) -> Response:
        after = str(math.ceil(error.seconds))
        return JSONResponse({"detail": str(error)}, 429, {"Retry-After": after})

    @app.exception_handler(ValidationError)
    async def invalid(request: Request, error: ValidationError) -> Response:
        facts = error.errors(include_url=False, include_context=False, include_input=False)
        return JSONResponse({"detail": facts[:10]}, 422)

    async def in_turn(tenant: Tenant, request: Request, work: Any) -> Any:
        """Do a tenant's work after what it has sent before, unless its client goes away."""

        async def within() -> Any:
            deadline = anyio.current_time() + TIMEOUT
            async with (
                tenant.admission.enter(priority=tenant.plan.priority, deadline=deadline),
                tenant.turn,
            ):
                return await work()

        return await unless_disconnected(within, partial(disconnection, request))

    @app.post("/v1/forward_backward")
    async def forward_backward(
        batch: Annotated[Batch, sent(Batch)], tenant: Mine, request: Request
    ) -> dict[str, Any]:
        """Add a batch's gradients to those that wait for the next step."""

        async def work() -> dict[str, Any]:
            tenant.charge(len(batch))
            inputs, labels = ag.from_numpy(batch.array()), ag.tensor(batch.labels)
            loss, right = await tenant.training.forward_backward(inputs, labels)
            tenant.passes += 1
            return {"loss": loss, "right": right, "rows": len(batch.labels)}

        return await in_turn(tenant, request, work)

    @app.post("/v1/optim_step")
    async def optim_step(
        step: Annotated[Step, sent(Step)], tenant: Mine, request: Request
    ) -> dict[str, Any]:
        """Take a step by the accumulated gradients, and clear them."""

        async def work() -> dict[str, Any]:
            # A step that has begun is completed even if its client disconnects.
            with anyio.CancelScope(shield=True):
                await tenant.training.step(step.lr)
            tenant.steps += 1
            return {"steps": tenant.steps}

        return await in_turn(tenant, request, work)

    @app.post("/v1/predict")
    async def predict(
        rows: Annotated[Rows, sent(Rows)], tenant: Mine, request: Request
    ) -> dict[str, Any]:
        """The likeliest classes."""

        async def work() -> dict[str, Any]:
            tenant.charge(len(rows))
            return {"classes": await tenant.training.predict(ag.from_numpy(rows.array()))}

        return await in_turn(tenant, request, work)

    @app.post("/v1/reset")
    async def reset(tenant: Mine, request: Request) -> dict[str, Any]:
        """Forget the adapter."""

        async def work() -> dict[str, Any]:
            tenant.reset()
            return {"steps": 0}

        return await in_turn(tenant, request, work)

    @app.get("/v1/status")
    async def status(tenant: Mine) -> dict[str, Any]:
        return {"tenant": tenant.name, "passes": tenant.passes, "steps": tenant.steps}

    @app.get("/healthz")
    async def alive() -> dict[str, bool]:
        return {"alive": True}

    return app
