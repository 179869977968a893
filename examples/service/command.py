"""The command that serves."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryFile

from examples.options import seconds, whole
from examples.service.app import SETTINGS
from examples.service.checkpoint import load
from examples.service.model import make_model
from examples.web import LOCAL, add_host_options, allowed_hosts, serve


def main() -> int:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples.service")
    add_host_options(parser, 8000)
    parser.add_argument("--weights", type=Path, default=_kept(), help="kept in this file")
    parser.add_argument("--workers", type=whole(1, 1000), default=1, help="one of them learns")
    parser.add_argument("--timeout", type=seconds, default=2.0, help="seconds for a request")
    parser.add_argument(
        "--grace", type=whole(0, 3600), default=2, help="seconds for requests at the end"
    )
    parser.add_argument(
        "--burden",
        action=argparse.BooleanOptionalAction,
        help="let the page run heavy training beside requests (default: on a loopback address)",
    )
    args = parser.parse_args()
    burden = args.host in LOCAL if args.burden is None else args.burden
    try:
        if args.weights.is_dir():
            raise IsADirectoryError("this is a folder; name a file in it")
        args.weights.parent.mkdir(parents=True, exist_ok=True)
        load(args.weights, make_model())
        with TemporaryFile(
            dir=args.weights.parent
        ):  # a folder that nobody can write into is refused
            pass
    except Exception as error:
        # Checked here, because the learner would end with a traceback.
        parser.error(f"--weights {args.weights}: {error}")
    facts = {
        "weights": str(args.weights),
        "timeout": args.timeout,
        "hosts": allowed_hosts(args),
        "burden": burden,
    }
    os.environ[SETTINGS] = json.dumps(facts)
    return serve(
        "examples.service.app:from_environment",
        args,
        f"http://{args.host}:{args.port} (Ctrl-C ends it; weights: {args.weights})",
        factory=True,
        workers=args.workers,
        timeout_graceful_shutdown=args.grace,
        # On a busy machine a worker takes longer to start than the usual 5 seconds.
        timeout_worker_healthcheck=30,
    )


def _kept() -> Path:
    """Where programs keep their state, by the XDG base directory specification."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "asyncgrad", "digits.safetensors")
