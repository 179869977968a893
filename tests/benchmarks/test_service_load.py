"""The load test in its short form: everything is answered and learnt; nothing depends on time."""

from __future__ import annotations

import json

import pytest

for needed in ("fastapi", "uvicorn", "uvloop", "prometheus_client", "safetensors"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")

from benchmarks.service import serving  # noqa: E402
from benchmarks.service_client import request  # noqa: E402


def answered(side: str) -> None:
    with serving(side, learn=True) as service:
        for rate in (None, 200.0):
            before = service.step()
            turn = service.load(250, rate)
            assert len(turn.latencies) == 250
            assert turn.latencies == sorted(turn.latencies)
            assert 0 < turn.percentile(50) <= turn.percentile(99) <= turn.latencies[-1]
        # It learns between the requests, too: some time, whenever that is.
        while service.step() == before:
            pass


def test_the_service_answers_an_open_and_a_closed_loop_while_it_learns():
    answered("asyncgrad")


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("side", ["inline", "to_thread"])
def test_so_does_the_same_service_with_pytorch(side):
    answered(side)


def test_a_request_is_what_http_wants():
    body = json.dumps({"pixels": [0.0] * 64}).encode()
    head, _, sent = request("/predict", body).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /predict HTTP/1.1\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert sent == body
