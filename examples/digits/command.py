"""The command line of the demo.

Each variant runs in a fresh process, one after the other, so that none finds another's threads or
objects. `--only asyncgrad` runs one of them, right here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.digits import data, machine, program, report, variants


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.digits")
    parser.add_argument("--only", choices=variants.NAMES, help="run this variant alone")
    parser.add_argument("--quick", action="store_true", help="a small model and little load")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop's event loop")
    parser.add_argument("--json", metavar="PATH", type=Path, help="write the figures there")
    parser.add_argument("--check", action="store_true", help="fail if a promise is missed")
    parser.add_argument("--no-report", action="store_true", help="leave out the table")
    return parser.parse_args()


def run_here(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run the program with one variant in this process."""
    loop_factory = None
    if args.uvloop:
        import uvloop

        loop_factory = uvloop.new_event_loop
    settings = program.QUICK if args.quick else program.Settings()
    variant, digits = variants.load(name), data.load(settings.seed)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(program.run(variant, digits, settings, report.Display(Console())))


def run_in_process(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run the program with one variant in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder, "figures.json")
        command = [sys.executable, str(Path(__file__).with_name("__main__.py")), "--only", name]
        command += ["--no-report", "--json", str(figures)]
        command += [f"--{option}" for option in ("quick", "uvloop") if getattr(args, option)]
        # In a session of its own, Ctrl-C reaches it through here alone, and once.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        if status:
            raise SystemExit(f"{name} ended with status {status}")
        return json.loads(figures.read_text())["results"][0]


def main() -> int:
    """Run the variants that are wanted and possible, and report."""
    args = arguments()
    if args.only and args.no_report:  # one of several, whose parent reports
        figures: dict[str, Any] = {"results": [run_here(args.only, args)]}
    else:
        figures = report_of(args)
        report.show(Console(), figures)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    return int(args.check and report.MISSED in figures.get("checks", {}).values())


def report_of(args: argparse.Namespace) -> dict[str, Any]:
    """Run the chosen variants, and measure the machine before and after them."""
    started, before = time.perf_counter(), machine.listen()
    console = Console()
    console.print(f"This machine: {before}.", highlight=False)
    if args.only:
        results = [run_here(args.only, args)]
    else:
        results = [run_in_process(name, args) for name in variants.to_compare()]
    noise = before.worse(machine.listen())
    seconds = time.perf_counter() - started
    return {
        "results": results,
        "seconds": seconds,
        "machine": asdict(noise),
        "checks": report.checks(results, seconds, noise),
    }
