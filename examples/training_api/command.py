"""The command that serves."""

from __future__ import annotations

import argparse
import json
import secrets
from pathlib import Path

import uvicorn

from examples.training_api.app import create_app
from examples.training_api.tenants import Plan
from examples.web import WAITING, Patient, add_host_options, allowed_hosts


def main() -> int:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples.training_api")
    add_host_options(parser, 8001)
    parser.add_argument(
        "--tenants",
        type=Path,
        help='JSON: {"name": {"token": "...", "priority": 0, "rows_per_second": 10000}}',
    )
    args = parser.parse_args()
    if args.tenants is None:
        token = secrets.token_urlsafe(32)
        plans = {"you": Plan(token=token)}
        print(f"token: {token}", flush=True)
    else:
        listed = json.loads(args.tenants.read_text())
        plans = {name: Plan(**facts) for name, facts in listed.items()}
    print(f"http://{args.host}:{args.port} (Ctrl-C ends it)", flush=True)
    uvicorn.run(
        create_app(plans, allowed_hosts(args)),
        host=args.host,
        port=args.port,
        log_level="warning",
        # Slow and half-open connections end, and no more are taken than can be served.
        http=Patient,
        timeout_keep_alive=5,
        limit_concurrency=WAITING + 1_000,
    )
    return 0
