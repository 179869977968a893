"""Graphs drawn and weighed."""

import re
import shutil

import pytest

import asyncgrad as ag
from asyncgrad.autograd.graph import memory, saved_tensors_hooks, to_dot


def boxes(dot):
    """The lines in each box, by its name."""
    found = re.findall(r'^  (n\d+) \[label="(.*?)"(?:, fillcolor=\w+)?\];$', dot, re.M)
    return {name: label.split("\\n") for name, label in found}


def arrows(dot):
    """Pairs of boxes, with the number of the input that an arrow leads to."""
    found = re.findall(r'^  (n\d+) -> (n\d+)(?: \[label="(\d+)"\])?;$', dot, re.M)
    return [(a, b, int(number or 0)) for a, b, number in found]


def test_a_drawing_has_every_node_and_edge_once():
    """With shapes, numbers and saved bytes; the newest node first."""
    x = ag.ones(2, 3, requires_grad=True)
    w = ag.ones(3, 4, requires_grad=True)
    y = ag.exp(x @ w)
    loss = (y * y).sum()
    dot = to_dot(loss, names={"weight": w})
    assert dot.startswith("digraph {")
    assert dot.endswith("}\n")
    shown = boxes(dot)
    assert [re.sub(r"\d* .*", "", label[0]) for label in shown.values()] == [
        "SumBackward",
        "MulBackward",
        "ExpBackward",
        "MmBackward",
        "AccumulateGrad",
        "weight",
    ]
    numbers = [int(label[0].split("#")[1]) for label in list(shown.values())[:4]]
    assert numbers == sorted(numbers, reverse=True)
    assert shown["n2"][1:] == ["float32[2, 4]", "result: float32[2, 4], 32 B"]
    assert shown["n3"][2:] == ["other: float32[3, 4], 48 B", "self: float32[2, 3], 24 B"]
    assert shown["n5"] == ["weight", "AccumulateGrad", "float32[3, 4]"]
    assert sorted(arrows(dot)) == [
        ("n0", "n1", 0),
        ("n1", "n2", 0),
        ("n1", "n2", 0),
        ("n2", "n3", 0),
        ("n3", "n4", 0),
        ("n3", "n5", 0),
    ]


def test_drawings_start_at_several_roots_of_every_kind():
    """Tensors, nodes and edges; a root that leads to another is drawn once."""
    x = ag.ones(4, requires_grad=True)
    first, second = ag.split(x * 2, 2)
    edge = ag.autograd.graph.get_gradient_edge(second)
    dot = to_dot(first, edge, x.sum().grad_fn)
    names = [label[0].split()[0] for label in boxes(dot).values()]
    assert names.count("AccumulateGrad") == 1
    assert names.count("MulBackward0") == 1
    assert boxes(to_dot(x)) == {"n0": ["AccumulateGrad", "float32[4]"]}
    with pytest.raises(RuntimeError, match="no graph"):
        to_dot(x.detach())
    with pytest.raises(TypeError, match="not at int"):
        memory(3)


def test_what_a_function_keeps_is_shown_and_quoted():
    """Saved tensors, and tensors on ctx; several outputs have numbered arrows."""

    class Two(ag.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            ctx.mask = [x > 0, {"again": x < 0}]
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a + b

    x = ag.ones(5, requires_grad=True)
    a, b = Two.apply(x)
    dot = to_dot(a + b, names={'say "x"': x})
    label = next(label for label in boxes(dot).values() if label[0].startswith("TwoBackward"))
    assert label[1:] == [
        "float32[5], float32[5]",
        "saved_tensors[0]: float32[5], 20 B",
        "ctx.mask[0]: bool[5], 5 B",
        "ctx.mask[1]['again']: bool[5], 5 B",
    ]
    assert sorted(number for _, _, number in arrows(dot)) == [0, 0, 1]
    assert r"say \"x\"" in dot
    kept = memory(a + b)
    assert kept.nbytes == 20 + 5 + 5
    assert kept.saved_nbytes == 10


def test_long_graphs_are_drawn_without_recursion():
    """A chain of so many nodes."""
    x = ag.ones(1, requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y + 1
    assert len(boxes(to_dot(y))) == 20_001
    assert memory(y).nbytes == 4


def test_memory_is_counted_once_and_goes_with_the_pass():
    """Views and arrays that several nodes have saved share theirs."""
    x = ag.ones(3, 4, requires_grad=True)
    y = x * 1
    view = y[:2]
    loss = (view * view).sum() + (y * y).sum()
    before = memory(loss)
    # `y`, once; and the leaf.
    assert before.nbytes == 48 + 48
    assert before.saved_nbytes == 48
    shared = [one for one in before.kept if one.name in {"self", "other"} and not one.nbytes]
    assert len(shared) == 3
    assert "shared" in str(shared[0])
    assert str(before).splitlines()[0].split() == ["96", "B", "in", "all"]
    loss.backward()
    assert memory(loss).saved_nbytes == 0
    assert [one.name for one in memory(loss).kept] == ["variable"]


def test_a_saved_leaf_counts_as_the_leaf():
    """It would live without the graph."""
    x, w = ag.ones(3, requires_grad=True), ag.ones(3, requires_grad=True)
    kept = memory((x * w).sum())
    assert kept.nbytes == 24
    assert kept.saved_nbytes == 0


def test_packed_tensors_are_not_the_graphs():
    """Hooks have them: their bytes are unknown."""
    x = ag.ones(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: t.numpy().tobytes(), lambda t: t):
        y = ag.exp(x).sum()
    kept = memory(y)
    (packed,) = [one for one in kept.kept if one.packed]
    assert (packed.name, packed.shape, packed.nbytes) == ("result", (3,), 0)
    assert "packed" in str(packed)
    assert "packed" in to_dot(y)


def test_anomaly_mode_adds_the_line_that_saved_it():
    """The innermost of the user's frames."""
    x = ag.ones(3, requires_grad=True)
    with ag.autograd.set_detect_anomaly(True):
        y = ag.exp(x)
    (entry,) = [one for one in memory(y).kept if one.name == "result"]
    assert entry.made_at is not None
    assert "y = ag.exp(x)" in entry.made_at
    assert entry.made_at in str(entry)
    assert entry.sequence_nr == y.grad_fn._sequence_nr()


def test_a_picture_is_drawn_where_graphviz_is(tmp_path, monkeypatch):
    """Anything called `dot` will do; without it the error says what to install."""
    dot = to_dot(ag.ones(1, requires_grad=True) * 2)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert dot._repr_svg_() is None
    with pytest.raises(RuntimeError, match="Install Graphviz"):
        dot.svg()
    program = tmp_path / "dot"
    cat, echo = "/bin/cat", "echo"
    program.write_text(f"#!/bin/sh\n{echo} \"<svg>$1\"\n{cat}\n{echo} '</svg>'\n")
    program.chmod(0o755)
    assert dot.svg() == f"<svg>-Tsvg\n{dot}</svg>\n"
    assert dot._repr_svg_() == dot.svg()
    program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    with pytest.raises(RuntimeError, match="dot has failed: broken"):
        dot.svg()


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_understands_the_text():
    """The real one."""
    x = ag.ones(2, requires_grad=True)
    assert "</svg>" in to_dot((x * x).sum(), names={"a \\ b": x}).svg()
