"""How the tests run the examples: as processes of their own, as their readers do."""

from __future__ import annotations

import os
import select
import signal
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


def _on_a_terminal() -> None:
    os.login_tty(0)
    # Whoever runs the tests in the background may have had Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def said_until_ctrl_c(sign: bytes, *arguments: str | Path) -> bytes:
    """What Python says on a terminal where Ctrl-C is typed after a sign; it ends with status 130.

    All its processes have the terminal open. Its end shows when the last of them is gone.
    """
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-W", "always", *map(str, arguments)],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
        preexec_fn=_on_a_terminal,
    )
    os.close(theirs)
    said, typed, give_up = b"", False, time.monotonic() + 110
    try:
        while select.select([ours], [], [], give_up - time.monotonic())[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:  # how Linux says that the terminal has no other end any more
                part = b""
            if not part:
                break
            said += part
            if not typed and sign in said:
                os.write(ours, b"\x03")
                typed = True
        else:
            raise AssertionError(f"a process is still there: {said.decode()}")
        assert typed, said.decode()
        assert process.wait(100) == 130, said.decode()
        return said
    finally:
        process.kill()
        process.wait()
        os.close(ours)
