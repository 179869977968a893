"""The commands of the web examples: what they print, when, and how they end."""

import importlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import ROOT, a_port, run

pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("fastapi", reason="fastapi is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")


def _command(module, folder, *options):
    """The arguments of `subprocess` for a command whose state is kept in a folder."""
    return {
        "args": [sys.executable, "-m", module, *options],
        "cwd": ROOT,
        "text": True,
        "env": os.environ | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder)},
    }


@contextmanager
def started(module, folder, *options):
    """A service's process, and its port, once it has said where it is."""
    with a_port() as port:
        process = subprocess.Popen(
            **_command(module, folder, "--port", str(port), *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Whoever runs the tests in the background may have had Ctrl-C ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        try:
            line = process.stdout.readline()
            where = f"http://127.0.0.1:{port} (Ctrl-C ends it"
            assert line.startswith(where), process.stderr.read()
            yield process, port
        finally:
            process.kill()
            process.communicate()


def ended(process, patience=100):
    """Ctrl-C: the exit status, and what was written to stderr."""
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=patience)
    return process.returncode, errors


def test_a_service_of_two_workers_says_where_it_is_when_it_answers_and_ends_at_ctrl_c(tmp_path):
    with started("examples.service", tmp_path, "--workers", "2") as (process, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=100) as answer:
            assert answer.status == 200
        assert ended(process) == (0, "")


def test_ctrl_c_ends_the_service_at_once_while_its_page_is_open_and_its_weights_are_elsewhere(
    tmp_path,
):
    with (
        started("examples.service", tmp_path, "--grace", "100") as (process, port),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/events", timeout=100) as page,
    ):
        assert page.readline().startswith(b"data: ")
        # Long before the grace is over, which other answers would have.
        assert ended(process, patience=30) == (0, "")
    assert (tmp_path / "asyncgrad" / "digits.safetensors").exists()
    assert not (ROOT / "digits.safetensors").exists()


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """A command's `main`, called in this process: its status, and what it has written."""
    monkeypatch.setattr(os, "environ", os.environ | {"XDG_STATE_HOME": str(tmp_path)})

    def call(module, *arguments):
        main = importlib.import_module(f"examples.{module}").main
        monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
        try:
            status = main()
        except SystemExit as end:
            status = end.code
        return (status, *capsys.readouterr())

    return call


@pytest.mark.parametrize("module", ["service", "training_api"])
def test_a_port_that_is_taken_is_said_in_two_lines(command, module):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, errors = command(f"{module}.command", "--port", port)
    assert (status, out) == (1, "")
    first, second = errors.splitlines()
    assert f"can't listen on 127.0.0.1:{port}" in first
    assert f"--port {port + 1}" in second


@pytest.mark.parametrize(
    ("module", "options", "said"),
    [
        ("service", "--port 80000", "argument --port: expected a number from 1 to 65535"),
        ("service", "--workers 0", "argument --workers: expected a number from 1 to"),
        ("service", "--timeout nan", "argument --timeout: expected a number of seconds above 0"),
        ("service", "--timeout soon", "argument --timeout: expected a number of seconds above 0"),
        ("service", "--grace -1", "argument --grace: expected a number from 0 to 3600"),
        ("service", "--weights {broken}/weights.safetensors", "error: --weights"),
        ("service", "--weights {broken}", "error: --weights"),
        ("service", "--weights /", "error: --weights /: this is a folder"),
        pytest.param(
            "service",
            "--weights /proc/w.safetensors",
            "error: --weights /proc/w.safetensors",
            marks=pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc"),
        ),
        ("service", "--host 203.0.113.9", "can't listen on 203.0.113.9:8000"),
        ("training_api", "--port x", "argument --port: expected a number from 1 to 65535"),
        ("training_api", "--tenants {broken}", "error: --tenants"),
        ("training_api", "--tenants {broken}.json", "error: --tenants"),
        ("training_api", "--tenants {unknown}", "unexpected keyword argument 'rows'"),
        ("training_api", "--tenants {twice}", "two tenants have the same token"),
        ("training_api", "--tenants {urgent}", "priority, concurrent and max_waiting are whole"),
        ("edge_forecast", "--days 0", "argument --days: expected a number from 1 to 561"),
        ("edge_forecast", "--days 600", "argument --days: expected a number from 1 to 561"),
    ],
)
def test_options_that_make_no_sense_are_refused_without_a_traceback(
    module, options, said, tmp_path, command
):
    """Files among them: damaged, of another kind, and those that are not there."""
    (tmp_path / "broken").write_text("no weights, no tenants")
    (tmp_path / "unknown").write_text('{"me": {"rows": 3}}')
    token = "a token of 24 characters"
    for name, tenants in {
        "twice": {"ann": {"token": token}, "bob": {"token": token}},
        "urgent": {"ann": {"token": token, "priority": "high"}},
    }.items():
        (tmp_path / name).write_text(json.dumps(tenants))
    files = {name: tmp_path / name for name in ("broken", "unknown", "twice", "urgent")}
    given = options.format_map(files).split()
    status, _, errors = command(f"{module}.command", *given)
    assert status in {1, 2}
    assert said in errors.splitlines()[-1]


@pytest.mark.parametrize("module", ["service", "training_api", "edge_forecast"])
def test_the_status_of_a_command_is_that_of_its_process(module, tmp_path):
    done = subprocess.run(
        **_command(f"examples.{module}", tmp_path, "--no-such-option"), capture_output=True
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_the_training_api_prints_the_command_that_trains(tmp_path, command):
    with started("examples.training_api", tmp_path) as (process, port):
        said = [process.stdout.readline() for _ in range(3)]
        # A token that begins with a dash would be an option of the command.
        token = re.fullmatch(r"Your token: ([0-9a-f]{64})\n", said[0])[1]
        printed = shlex.split(said[2])
        assert printed[1:4] == ["-m", "examples.training_api.script", token]
        assert "test accuracy" in run(*printed[1:])
        status, _, errors = command("training_api.script", "a" * 20, f"http://127.0.0.1:{port}")
        assert status == 1
        assert "the service refuses: 401" in errors
        assert ended(process) == (0, "")


def test_the_script_says_what_is_missing(command):
    status, _, errors = command("training_api.script")
    assert status == 2
    assert "required: token" in errors
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        status, _, errors = command("training_api.script", "token", url)
    assert status == 1
    assert f"no service answers at {url}" in errors
    assert "make training-api" in errors


def test_the_hub_says_what_it_does_while_it_does_it():
    said = run("-m", "examples.edge_forecast", "--days", "120")
    assert "120 days of Seattle's weather in about 2 seconds" in said
    assert re.search(r"day [\d,]+: training 1 has ended; its forecasts are off by [\d.]+ deg", said)
    assert "is off by" in said
    assert "MB of memory at most" in said
