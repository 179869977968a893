from __future__ import annotations

import asyncio
import re
import runpy

import pytest
from programs import EXAMPLES, run, said_until_ctrl_c


def test_engine_in_100_lines_is_right_and_under_100_lines():
    source = EXAMPLES / "engine_in_100_lines.py"
    gradients = re.findall(r"gradient (\S+)   by finite differences (\S+)", run(source))
    assert len(gradients) == 2
    for ours, numeric in gradients:
        assert float(ours) == pytest.approx(float(numeric), rel=1e-6)
    assert len(source.read_text().splitlines()) < 100


def test_concurrent_passes_keeps_its_promises():
    """The program asserts them; here, that it came to its end."""
    said = run(EXAMPLES / "concurrent_passes.py")
    assert "100 users fitted their lines" in said
    assert ".grad = [4950. 4950. 4950.]" in said
    assert ".grad is still [2. 2. 2.]" in said
    assert "['there', 'there', None, 'there']" in said


@pytest.mark.asyncio(loop_factories=["asyncio-debug", "uvloop"])
async def test_concurrent_passes_runs_on_every_loop():
    """On asyncio's own, it runs above."""
    await runpy.run_path(str(EXAMPLES / "concurrent_passes.py"))["main"]()


def _script_losses(said: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"mean loss (\S+)", said)]


@pytest.fixture(scope="module")
def script_says() -> str:
    return run(EXAMPLES / "script.py")


def test_script_learns_the_digits(script_says):
    losses = _script_losses(script_says)
    assert len(losses) == 10
    assert losses == sorted(losses, reverse=True)
    assert float(re.search(r"accuracy on held-out digits: (\S+)%", script_says)[1]) > 95.0


@pytest.mark.torch
def test_script_is_a_pytorch_script_but_for_its_import(script_says):
    """The same text, run on PyTorch, prints the same losses."""
    source = EXAMPLES / "script.py"
    assert source.read_text().count("asyncgrad as ag") == 1
    on_torch = (
        "import pathlib, sys; path = sys.argv[1]; text = pathlib.Path(path).read_text();"
        "text = text.replace('import asyncgrad as ag', 'import torch as ag');"
        # With several threads, it would wait for a core that other tests keep busy.
        "import torch; torch.set_num_threads(1);"
        "exec(compile(text, path, 'exec'), {'__name__': '__main__', '__file__': path})"
    )
    theirs = _script_losses(run("-c", on_torch, source))
    assert _script_losses(script_says) == pytest.approx(theirs, rel=1e-3)


@pytest.mark.slow
def test_distributed_training_loses_a_worker_and_goes_on():
    pytest.importorskip("distributed", reason="Dask distributed is not installed")
    said = run(EXAMPLES / "distributed_training.py")
    assert "worker 1 was lost" in said
    assert said.count("False") == 2
    assert float(re.search(r"not seen in training: (\S+)%", said)[1]) > 90.0


@pytest.mark.slow
def test_ctrl_c_ends_distributed_training_and_its_workers_without_tracebacks():
    pytest.importorskip("distributed", reason="Dask distributed is not installed")
    said = said_until_ctrl_c(b"step  10", "-m", "examples.distributed_training")
    assert b"Traceback" not in said, said.decode()
    assert b"accuracy" not in said


@pytest.mark.slow
def test_federated_averaging_counts_the_first_and_ends_the_others():
    pytest.importorskip("distributed", reason="Dask distributed is not installed")
    said = run(EXAMPLES / "federated.py")
    assert said.count("the first 3 of 4") == 8
    assert float(re.findall(r"accuracy (\S+)%", said)[-1]) > 90.0
    assert "still running on workers: 0" in said


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what Dask imports
def test_a_straggler_answers_later(monkeypatch):
    """It counts if another worker has died."""
    pytest.importorskip("distributed", reason="Dask distributed is not installed")
    from examples import federated

    monkeypatch.setattr(federated, "DELAY", 0.0)

    async def main():
        weights = federated.make_net().state_dict()
        async with asyncio.timeout(60):
            return await federated.Participant(0).train(weights, 0, straggles=True)

    assert asyncio.run(main())[1] == 330


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what Dask imports
def test_the_first_of_several_calls_are_taken_in_their_order_and_a_lost_worker_is_none_of_them():
    pytest.importorskip("distributed", reason="Dask distributed is not installed")
    from asyncgrad.distributed import WorkerLostError
    from examples.federated import first

    async def main():
        later, cancelled = asyncio.Event(), []

        async def ends(value, *, wait=False, lost=False):
            try:
                if wait:
                    await later.wait()
                later.set()
                if lost:
                    raise WorkerLostError(value, "killed", "a call")
                return value
            except asyncio.CancelledError:
                cancelled.append(value)
                raise

        async def never(value):
            later.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(value)

        assert await first(2, [ends(0, wait=True), never(1), ends(2)]) == [0, 2]
        assert cancelled == [1]
        assert await first(2, [ends(0), ends(1, lost=True), ends(2), never(3)]) == [0, 2]
        with pytest.raises(WorkerLostError):
            await first(2, [ends(0), ends(1, lost=True)])
        with pytest.raises(ZeroDivisionError):
            await first(1, [fails(), never(4)])
        assert cancelled == [1, 3, 4]
        for calls in ([], [fails()]):
            with pytest.raises(ValueError, match="2 results are wanted"):
                await first(2, calls)

    async def fails():
        return 1 / 0

    asyncio.run(main())
