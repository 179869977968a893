"""The application: a tenant's passes and steps, in its turn, with its priority."""

from functools import partial
from typing import Annotated, Any, Self

import anyio
import numpy as np
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, model_validator

import asyncgrad as ag
from asyncgrad.serving import Disconnected, Overloaded, unless_disconnected
from examples.training_api.model import CLASSES, INPUTS
from examples.training_api.tenants import Plan, QuotaExceeded, Tenant, Tenants
from examples.web import Limited, disconnection

MAX_ROWS = 4_096
TIMEOUT = 30.0
Number = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]


class Strict(BaseModel):
    """A body with these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class Rows(Strict):
    """Some inputs."""

    inputs: Annotated[
        list[Annotated[list[Number], Field(min_length=INPUTS, max_length=INPUTS)]],
        Field(min_length=1, max_length=MAX_ROWS),
    ]

    def array(self) -> np.ndarray:
        """float32 (n, INPUTS)."""
        return np.array(self.inputs, np.float32)


class Batch(Rows):
    """Some inputs and their classes."""

    labels: list[Annotated[int, Field(ge=0, lt=CLASSES)]]

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        if len(self.labels) != len(self.inputs):
            raise ValueError(f"{len(self.inputs)} inputs and {len(self.labels)} labels")
        return self


class Step(Strict):
    """How far to go."""

    lr: Annotated[float, Field(gt=0, le=10)] = 1e-2


def create_app(plans: dict[str, Plan]) -> FastAPI:
    """The application for some tenants."""
    tenants = Tenants(plans)
    app = FastAPI(title="Training", docs_url=None, redoc_url=None)
    # A row is some 20 bytes a number.
    app.add_middleware(Limited, most=MAX_ROWS * INPUTS * 24)
    bearer = HTTPBearer(auto_error=False)

    async def tenant_of(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
    ) -> Tenant:
        tenant = None if given is None else tenants.find(given.credentials)
        if tenant is None:
            raise HTTPException(401, "no such token", {"WWW-Authenticate": "Bearer"})
        return tenant

    Mine = Annotated[Tenant, Depends(tenant_of)]

    for kind, status in ((Overloaded, 503), (TimeoutError, 504)):

        @app.exception_handler(kind)
        async def refused(request: Request, error: Exception, status: int = status) -> Response:
            return JSONResponse({"detail": str(error)}, status)

    @app.exception_handler(Disconnected)
    async def gone(request: Request, error: Disconnected) -> Response:
        return Response(status_code=499)

    @app.exception_handler(QuotaExceeded)
    async def too_much(request: Request, error: QuotaExceeded) -> Response:
        after = str(max(1, round(error.seconds)))
        return JSONResponse({"detail": str(error)}, 429, {"Retry-After": after})

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        facts = [{key: one[key] for key in ("loc", "msg", "type")} for one in error.errors()[:10]]
        return JSONResponse({"detail": facts}, 422)

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
    async def forward_backward(batch: Batch, tenant: Mine, request: Request) -> dict[str, Any]:
        """Add a batch's gradients to those that wait for the next step."""
        tenant.charge(len(batch.inputs))

        async def work() -> dict[str, Any]:
            logits = await ag.offload(tenant.adapter, ag.from_numpy(batch.array()))
            loss = ag.nn.functional.cross_entropy(logits, ag.tensor(batch.labels))
            # All or nothing: cancelled, it leaves no part of its gradients.
            await loss.backward()
            tenant.passes += 1
            right = (logits.detach().argmax(dim=-1) == ag.tensor(batch.labels)).sum().item()
            return {"loss": loss.item(), "right": right, "rows": len(batch.labels)}

        return await in_turn(tenant, request, work)

    @app.post("/v1/optim_step")
    async def optim_step(step: Step, tenant: Mine, request: Request) -> dict[str, Any]:
        """Take a step by what has been added up, and begin anew."""

        async def work() -> dict[str, Any]:
            for group in tenant.optimizer.param_groups:
                group["lr"] = step.lr
            await tenant.optimizer.step_async()
            tenant.optimizer.zero_grad()
            tenant.steps += 1
            return {"steps": tenant.steps}

        return await in_turn(tenant, request, work)

    @app.post("/v1/predict")
    async def predict(rows: Rows, tenant: Mine, request: Request) -> dict[str, Any]:
        """The likeliest classes."""
        tenant.charge(len(rows.inputs))

        async def work() -> dict[str, Any]:
            with ag.no_grad():
                logits = await ag.offload(tenant.adapter, ag.from_numpy(rows.array()))
            return {"classes": logits.argmax(dim=-1).tolist()}

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
