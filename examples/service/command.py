"""The command that serves."""

from __future__ import annotations

import argparse
from pathlib import Path

import uvicorn

from examples.service.app import Settings, create_app
from examples.web import WAITING, Patient


def main() -> int:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples.service")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--weights", type=Path, default=Path("digits.safetensors"))
    args = parser.parse_args()
    uvicorn.run(
        create_app(Settings(weights=args.weights)),
        host=args.host,
        port=args.port,
        log_level="warning",
        # Slow and half-open connections end, and no more are taken than can be served.
        http=Patient,
        timeout_keep_alive=5,
        limit_concurrency=WAITING + 1_000,
        # A client that reads events would keep the service from ending.
        timeout_graceful_shutdown=2,
    )
    return 0
