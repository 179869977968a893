"""How the tests run the examples: as processes of their own, as their readers do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
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


@contextmanager
def a_port():
    """A free port that nobody else is given meanwhile: it is bound, and not listened at."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


@contextmanager
def service(folder: Path, *arguments: str):
    """The digits service as a process of its own, once it is ready: the process and its port."""
    with a_port() as port, service_at(port, folder, *arguments) as process:
        yield process, port


@contextmanager
def service_at(port: int, folder: Path, *arguments: str):
    """The same at a given port: the process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.service", "--port", str(port),
         "--weights", str(folder / "w.safetensors"), "--timeout", "100", *arguments],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 100
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=100):
                    break
            except (urllib.error.URLError, ConnectionError):
                assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.communicate()
