"""The command that serves."""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import sys
from functools import partial
from pathlib import Path

from examples.training_api.app import create_app
from examples.training_api.cluster import connected
from examples.training_api.tenants import Plan
from examples.web import add_host_options, allowed_hosts, serve


def main() -> int:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples.training_api")
    add_host_options(parser, 8001)
    parser.add_argument(
        "--tenants",
        type=Path,
        help='JSON: {"name": {"token": "...", "priority": 0, "rows_per_second": 10000}}',
    )
    parser.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="compute on the workers of a Dask cluster, whose scheduler is at tcp://... or tls://...",
    )
    args = parser.parse_args()
    world = None if args.dask is None else partial(connected, args.dask)
    make = partial(create_app, hosts=allowed_hosts(args), open_world=world)
    url = f"http://{args.host}:{args.port}"
    welcome = f"{url} (Ctrl-C ends it)"
    if args.tenants is None:
        # In hexadecimal: a token that begins with a dash would be taken for an option.
        token = secrets.token_hex(32)
        app = make({"you": Plan(token=token)})
        python = Path(sys.executable)
        if python.is_relative_to(Path.cwd()):
            python = python.relative_to(Path.cwd())
        welcome += (
            f"\nYour token: {token}\nTrain with it, from another terminal in this folder:\n"
            f"    {shlex.quote(str(python))} -m examples.training_api.script {token} {url}"
        )
    else:
        try:
            listed = json.loads(args.tenants.read_text())
            app = make({name: Plan(**facts) for name, facts in listed.items()})
        except (OSError, ValueError, TypeError, AttributeError) as error:
            parser.error(f"--tenants {args.tenants}: {error}")
    return serve(app, args, welcome)
