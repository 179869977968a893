"""How the tests run the examples: as processes of their own, as their readers do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(*arguments: str | Path, cwd: Path = ROOT) -> str:
    """Run Python with all warnings shown, see that it ends without any, and return what it says."""
    done = subprocess.run(
        [sys.executable, "-W", "always", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr + done.stdout
    return done.stdout
