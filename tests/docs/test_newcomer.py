"""Eight programs of `tests/newcomer`, each written from the site alone, as a newcomer does.

The eighth, `typed.py`, is checked in `tests/typing` and run here.
"""

from __future__ import annotations

import asyncio
import io
import re
import runpy
import sys
from xml.etree import ElementTree

import pytest
from page_programs import DOCS

import asyncgrad as ag
from asyncgrad.testing import assert_close

PROGRAMS = DOCS.parent / "tests" / "newcomer"


def program(name):
    """What a program defines."""
    return runpy.run_path(str(PROGRAMS / f"{name}.py"))


def test_an_endpoint_answers_with_gradients():
    """Many at once; one that has no time left gets 504, and one without sense 422."""
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("fastapi")
    written = program("endpoint")

    async def ask():
        transport = httpx.ASGITransport(written["app"])
        async with httpx.AsyncClient(transport=transport, base_url="http://flats") as client:
            flats = [{"area": 10 * i, "rooms": i, "floor": 1} for i in range(1, 30)]
            flats += [{**flats[0], "within": -1}, {**flats[0], "area": -1}]
            return await asyncio.gather(*[client.post("/price", json=flat) for flat in flats])

    *answers, late, senseless = asyncio.run(ask())
    assert (late.status_code, senseless.status_code) == (504, 422)
    for i, answer in enumerate(answers, 1):
        x = ag.tensor([10.0 * i, i, 1.0], requires_grad=True)
        (slope,) = ag.grad(written["model"](x).sum(), x)
        assert_close(ag.tensor(list(answer.json()["by"].values())), slope)


def test_a_notebook_runs_from_top_to_bottom(monkeypatch):
    """In a kernel of its own, as Jupyter runs it; its table and its picture are shown."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    notebook = nbformat.read(PROGRAMS / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=100).execute()
    shown = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert shown[0][-1]["data"]["text/plain"] == "asyncgrad.Size([8, 2])"
    assert "<table" in shown[1][0]["data"]["text/html"]
    assert "MseLossBackward0" in shown[2][0]["data"]["image/svg+xml"]
    assert shown[4][0]["data"]["text/plain"] == "True"
    assert shown[5][0]["text"] == "tensor(6.)\n"


def test_a_loop_with_a_loader_and_a_bar_learns():
    pytest.importorskip("tqdm")
    bar = io.StringIO()
    model, best, again = asyncio.run(program("loop")["train"](file=bar))
    assert best > 0.9
    assert again == best
    assert not model.training
    assert re.findall(r"epoch (\d): 100%\S* 15/15 .*loss=", bar.getvalue()) == list("0123")


def test_a_function_has_the_gradient_of_its_formula():
    written = program("function")
    x = ag.tensor([0.5, 4.0, -2.0], dtype=ag.float64, requires_grad=True)
    y = ag.zeros(3, dtype=ag.float64, requires_grad=True)
    huber = written["Huber"].apply
    assert ag.autograd.gradcheck(lambda x, y: huber(x, y, 1.5), (x, y))
    assert ag.autograd.gradgradcheck(huber, (x, y))
    assert_close(huber(x, y, 1.5), ag.nn.functional.huber_loss(x, y, reduction="none", delta=1.5))
    assert asyncio.run(written["main"]()) == [1.5, 3.0]


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize("writer", ["asyncgrad", pytest.param("torch", marks=pytest.mark.torch)])
def test_weights_come_from_files_of_both_formats(writer, suffix, tmp_path):
    """Those that PyTorch writes, where it is installed: a whole checkpoint, with the optimiser."""
    library = pytest.importorskip("torch") if writer == "torch" else ag
    if suffix == "safetensors":
        pytest.importorskip("safetensors")
    written = program("weights")
    nn, path = library.nn, tmp_path / f"net.{suffix}"
    library.manual_seed(0)
    features = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
    )
    model = nn.ModuleDict({"features": features, "head": nn.Linear(64, 10)}).eval()
    if suffix == "pt":
        optimizer = library.optim.AdamW(model.parameters())
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
        library.save(states, path)
    elif writer == "torch":
        from safetensors.torch import save_file

        save_file(model.state_dict(), path)
    else:
        ag.serialization.save_safetensors(model.state_dict(), path)
    expected = model["head"](features(library.ones(1, 1, 8, 8)).flatten(1))[0]
    found = asyncio.run(written["main"](path))
    assert_close(ag.tensor(found), ag.tensor(expected.tolist()))


def test_a_graph_becomes_a_picture(tmp_path):
    table = program("picture")["draw"](tmp_path / "graph.svg")
    picture = ElementTree.parse(tmp_path / "graph.svg").getroot()
    said = " ".join(picture.itertext())
    assert {"LogsumexpBackward0", "0.weight", "2.bias"} <= set(said.split())
    assert re.search(r"^in all +58 +232$", str(table), re.MULTILINE)


def test_a_pass_ends_at_its_timeout_and_when_it_is_cancelled():
    """And no such pass has left a gradient."""
    ends = ["timeout", "wait_for", "cancelled", "deadline"]
    assert asyncio.run(program("cancellation")["main"]()) == [
        *[(end, None) for end in ends],
        ("done", [4.0, 4.0]),
    ]


def test_a_typed_program_runs(monkeypatch):
    """Dataclasses look their module up by its name."""
    monkeypatch.syspath_prepend(PROGRAMS)
    monkeypatch.delitem(sys.modules, "typed", raising=False)
    typed = __import__("typed")
    result = asyncio.run(typed.main())
    assert result.accuracy > 0.9
