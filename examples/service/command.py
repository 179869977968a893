"""The command that serves."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import uvicorn

from examples.service.app import SETTINGS
from examples.web import WAITING, Patient, add_host_options, allowed_hosts


def main() -> int:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples.service")
    add_host_options(parser, 8000)
    parser.add_argument("--weights", type=Path, default=Path("digits.safetensors"))
    parser.add_argument("--workers", type=int, default=1, help="one of them learns")
    parser.add_argument("--timeout", type=float, default=2.0, help="seconds for a request")
    parser.add_argument("--grace", type=int, default=2, help="seconds for requests at the end")
    args = parser.parse_args()
    print(f"http://{args.host}:{args.port} (Ctrl-C ends it)", flush=True)
    facts = {"weights": str(args.weights), "timeout": args.timeout, "hosts": allowed_hosts(args)}
    os.environ[SETTINGS] = json.dumps(facts)
    uvicorn.run(
        "examples.service.app:from_environment",
        factory=True,
        workers=args.workers,
        host=args.host,
        port=args.port,
        log_level="warning",
        # Slow and half-open connections end, and no more are taken than can be served.
        http=Patient,
        timeout_keep_alive=5,
        limit_concurrency=WAITING + 1_000,
        # A client that reads events would keep the service from ending.
        timeout_graceful_shutdown=args.grace,
    )
    return 0
