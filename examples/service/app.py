"""The application: its requests, their answers and refusals."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import multiprocessing
import os
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import numpy as np
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field
from starlette.middleware.trustedhost import TrustedHostMiddleware

from asyncgrad.serving import Admission, Batcher, Disconnected, Overloaded, unless_disconnected
from examples.service.burden import LONGEST, Burden, Manner
from examples.service.calm import Calm
from examples.service.lag import Lag
from examples.service.learner import Learner
from examples.service.metrics import CONTENT_TYPE, Metrics, engine_picture
from examples.service.model import PIXELS
from examples.service.spool import Full
from examples.service.trainer import Trainer
from examples.web import Limited, disconnection

#: The most bytes of a request's body.
MAX_BODY = 16_384
#: The longest duration of an adaptation, in milliseconds.
MAX_WITHIN_MS = 60_000.0
#: The most pages that may watch the learning at once.
MAX_WATCHERS = 200
#: The environment variable with the settings of workers, in JSON.
SETTINGS = "DIGITS_SETTINGS"
PAGE = Path(__file__).with_name("page")

Pixel = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


class Strict(BaseModel):
    """A body with these fields and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Image(Strict):
    """An 8x8 image, line by line, from 0 (paper) to 1 (ink)."""

    pixels: Annotated[list[Pixel], Field(min_length=PIXELS, max_length=PIXELS)]

    def array(self) -> np.ndarray:
        """float32 (64,)."""
        return np.array(self.pixels, np.float32)


class Explained(Image):
    """An image, and which digit's logit is to be explained; the likeliest if None."""

    digit: Annotated[int, Field(ge=0, le=9)] | None = None


class Correction(Image):
    """An image, and the digit that it is."""

    digit: Annotated[int, Field(ge=0, le=9)]


class Adapted(Image):
    """An image to adapt to, for so many milliseconds at most."""

    within_ms: Annotated[float, Field(gt=0, le=MAX_WITHIN_MS)] = 100.0


class Burdened(Strict):
    """Heavy passes beside the requests, for so many seconds: awaited, or blocking the loop."""

    manner: Manner
    seconds: Annotated[float, Field(gt=0, le=LONGEST)] = LONGEST


@dataclass(frozen=True)
class Settings:
    """How the service runs."""

    weights: Path
    first_steps: int = 400
    batch: int = 64
    rehearse: bool = False
    concurrent: int = 16
    max_waiting: int = 500
    #: Seconds that a request may take.
    timeout: float = 2.0
    #: The accepted names in Host headers.
    hosts: tuple[str, ...] = ("*",)
    #: Whether a request can start heavy passes, also passes that block the loop.
    burden: bool = False
    #: Whether the collector leaves out what was imported, which it would visit for 40 ms without a
    #: request being answered. Only for a process that does nothing else.
    freeze: bool = False


def create_app(settings: Settings, trainer: Trainer | None = None) -> FastAPI:
    """The application, which starts when its server does."""
    calm, lag, burden = Calm(), Lag(), Burden()
    learner = Learner(
        trainer or Trainer(),
        settings.weights,
        first_steps=settings.first_steps,
        batch=settings.batch,
        rehearse=settings.rehearse,
        calm=calm,
    )
    admission = Admission(settings.concurrent, max_waiting=settings.max_waiting)
    metrics = Metrics()

    async def predict(images: list[np.ndarray]) -> list[tuple[np.ndarray, int]]:
        published = learner.published
        rows = published.probabilities(np.stack(images))
        return [(row, published.step) for row in rows]

    batcher = Batcher(predict, max_size=64, max_delay=0.001, max_waiting=settings.max_waiting)
    ready = False

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        nonlocal ready
        async with learner, batcher, lag, burden:
            _end_with_supervisor()
            if settings.freeze:
                gc.collect()
                gc.freeze()
            ready = True
            try:
                yield
            finally:
                ready = False

    app = FastAPI(title="Digits", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Limited, most=MAX_BODY)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=settings.hosts, www_redirect=False)
    app.state.learner = learner

    @app.exception_handler(Full)
    @app.exception_handler(Overloaded)
    async def overloaded(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "1"})

    @app.exception_handler(TimeoutError)
    async def timed_out(request: Request, error: TimeoutError) -> Response:
        return JSONResponse({"detail": str(error)}, 504)

    @app.exception_handler(Disconnected)
    async def gone(request: Request, error: Disconnected) -> Response:
        return Response(status_code=499)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        # Without the input, which may be large or, with NaN, no JSON.
        facts = [{key: one[key] for key in ("loc", "msg", "type")} for one in error.errors()]
        return JSONResponse({"detail": facts}, 422)

    async def admitted(name: str, request: Request, work: Any, priority: int = 0) -> Any:
        """Do the work of a request in its turn, unless its client goes away."""

        async def within() -> Any:
            deadline = anyio.current_time() + settings.timeout
            async with admission.enter(priority=priority, deadline=deadline):
                return await work()

        with metrics.request(name), calm.request():
            return await unless_disconnected(within, partial(disconnection, request))

    @app.get("/")
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    app.mount("/page", StaticFiles(directory=PAGE))

    @app.post("/predict")
    async def predict_one(image: Image) -> dict[str, Any]:
        with metrics.request("predict"), calm.request():
            probabilities, step = await batcher(image.array(), priority=1)
        return {
            "digit": int(probabilities.argmax()),
            "probabilities": probabilities.tolist(),
            "step": step,
        }

    @app.post("/explain")
    async def explain(body: Explained, request: Request) -> dict[str, Any]:
        async def work() -> dict[str, Any]:
            published, image = learner.published, body.array()
            digit = body.digit
            if digit is None:
                digit = int(published.probabilities(image[None])[0].argmax())
            gradient, integrated = await asyncio.gather(
                published.input_gradient(image, digit),
                published.integrated_gradients(image, digit),
            )
            return {
                "digit": digit,
                "gradient": gradient.tolist(),
                "integrated": integrated.tolist(),
                "step": published.step,
            }

        return await admitted("explain", request, work)

    @app.post("/correct", status_code=202)
    async def correct(body: Correction) -> dict[str, Any]:
        name = await learner.correct(body.array(), body.digit)
        return {"name": name, "waiting": learner.waiting}

    @app.delete("/corrections/{name}", status_code=202)
    async def undo(name: str) -> dict[str, Any]:
        try:
            await learner.undo(name)
        except KeyError:
            raise HTTPException(404, "it is none of the last corrections") from None
        return {"name": name}

    @app.post("/adapt")
    async def adapt(body: Adapted, request: Request) -> dict[str, Any]:
        published, image = learner.published, body.array()
        before = published.probabilities(image[None])[0]
        after, adapted = before, False
        # The time limit includes the wait for admission.
        with contextlib.suppress(TimeoutError), anyio.move_on_after(body.within_ms / 1e3):
            after = await admitted("adapt", request, partial(published.adapt, image))
            adapted = True
        metrics.adapted(adapted)
        return {
            "digit": int(after.argmax()),
            "adapted": adapted,
            "probabilities": after.tolist(),
            "before": before.tolist(),
            "step": published.step,
        }

    @app.get("/events")
    async def events() -> StreamingResponse:
        if learner.watchers >= MAX_WATCHERS:
            raise Overloaded(f"{learner.watchers} pages watch already")

        async def stream():
            with learner.watching() as happening:
                yield f"data: {json.dumps(learner.story() | {'burden': settings.burden})}\n\n"
                while True:
                    yield f"data: {json.dumps(await happening.get())}\n\n"

        return StreamingResponse(
            stream(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    @app.get("/examples")
    async def examples() -> list[dict[str, Any]]:
        return learner.examples()

    if settings.burden:

        @app.put("/burden")
        async def put_burden(body: Burdened) -> dict[str, Any]:
            await burden.start(body.manner, body.seconds)
            return {"manner": burden.manner}

        @app.delete("/burden")
        async def delete_burden() -> dict[str, Any]:
            await burden.stop()
            return {"manner": burden.manner}

    @app.get("/metrics")
    async def prometheus() -> Response:
        return Response(metrics.text(learner, admission, batcher, lag), media_type=CONTENT_TYPE)

    @app.get("/engine")
    async def engine() -> dict[str, Any]:
        return engine_picture(lag)

    @app.get("/healthz")
    async def alive() -> dict[str, bool]:
        if ready and not learner.alive:
            raise HTTPException(503, "the learner has died; start this process anew")
        return {"alive": True}

    @app.get("/readyz")
    async def is_ready() -> dict[str, bool]:
        if not ready:
            raise HTTPException(503, "still starting, or ending")
        return {"ready": True}

    return app


def _end_with_supervisor() -> None:
    """Stop serving when the process is gone that has started this one as one of its workers.

    If that was killed, its workers would keep the port and the weights from who comes after it.
    """
    supervisor, loop = multiprocessing.parent_process(), asyncio.get_running_loop()
    if supervisor is None:
        return
    gone = supervisor.sentinel

    def end() -> None:
        loop.remove_reader(gone)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(gone, end)


def from_environment() -> FastAPI:
    """The application in one of several workers, which a server starts by its import string."""
    facts = json.loads(os.environ[SETTINGS])
    return create_app(Settings(Path(facts.pop("weights")), freeze=True, **facts))
