"""Run the benchmarks: `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from pathlib import Path

from asyncgrad.backends import numba
from benchmarks import (
    chain,
    footprint,
    instruments,
    lag,
    load,
    million,
    models,
    service,
    small,
    table,
    waits,
)
from benchmarks.harness import Machine, NotThereError, Setting
from benchmarks.harness import load as load_average
from benchmarks.report import Missing, Row, as_markdown, as_text, save_json

#: Where the figures of the last run are.
RESULTS = Path(__file__).parent / "results.json"

#: The cases by their names, in the order of the table.
CASES = {
    "chain": chain.measure,
    "whole": small.measure_whole,
    "layers": small.measure_layers,
    "long": lag.measure_long,
    "cores": lag.measure_cores,
    "million": million.measure,
    "footprint": footprint.measure,
    "models": models.measure,
    "awaited": models.measure_awaited,
    "small": table.measure_tiny,
    "large": table.measure_large,
    "many": load.measure_many,
    "tiny": lag.measure_tiny,
    "commit": lag.measure_commit,
    "pair": load.measure_pair,
    "urgent": load.measure_urgent,
    "fair": load.measure_fair,
    "stranger": load.measure_stranger,
    "waits": waits.measure,
    "service": service.measure,
    "instruments": instruments.measure,
}


def main() -> int:
    """Run the chosen cases, print the table, and save what was asked for."""
    options = _options()
    if options.numba:
        numba.enable()
    setting = Setting(quick=options.quick, loop=options.loop)
    machine = Machine.here()
    before = load_average()
    rows: list[Row | Missing] = []
    failed = False
    for name in options.only:
        start = time.perf_counter()
        print(f"{name} ...", end=" ", flush=True, file=sys.stderr)
        gc.collect()
        try:
            rows += CASES[name](setting)
        except NotThereError as error:
            rows.append(Missing(name, str(error)))
        except Exception as error:
            # The other cases are worth having.
            traceback.print_exc()
            failed = True
            rows.append(Missing(name, f"{type(error).__name__}: {error}"))
        print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    load = before, load_average()
    print(as_text(rows, machine, load))
    run = {"quick": options.quick, "loop": options.loop, "numba": options.numba}
    save_json(options.json, rows, machine, load, **run)
    if options.markdown:
        options.markdown.write_text(as_markdown(rows, machine, load), encoding="utf-8")
    if options.plot:
        from benchmarks.plot import draw

        draw(options.plot)
    return int(failed)


def _options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        type=_names,
        default=list(CASES),
        metavar="CASE,CASE",
        help=f"of {', '.join(CASES)}",
    )
    parser.add_argument("--quick", action="store_true", help="few repetitions, smaller sizes")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument(
        "--numba", action="store_true", help="compiled kernels, in cases that run in this process"
    )
    parser.add_argument(
        "--json", type=Path, default=RESULTS, metavar="PATH", help="where all figures are saved"
    )
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="save the table")
    parser.add_argument("--plot", type=Path, metavar="PATH.svg", help="draw many passes at once")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    """Case names from a list with commas."""
    names = text.split(",")
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no case is called {', '.join(unknown)}. There are {', '.join(CASES)}."
        )
    return names


if __name__ == "__main__":
    sys.exit(main())
