"""Pictures of graphs: what they show, and where it is."""

from xml.etree import ElementTree

from functions import function_of
from hypothesis import given
from hypothesis import strategies as st

import asyncgrad as ag
from asyncgrad.autograd.graph import to_dot, to_svg
from asyncgrad.autograd.layered import layout

SPACE = "{http://www.w3.org/2000/svg}"
GAP = (10.0, 20.0)


@st.composite
def graphs(draw):
    """Sizes of boxes, and edges from earlier to later ones."""
    sizes = draw(st.lists(st.tuples(st.integers(5, 90), st.integers(5, 50)), min_size=1))
    pairs = [(a, b) for b in range(len(sizes)) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=80)) if pairs else []
    return sizes, edges


@given(graphs())
def test_boxes_keep_apart_and_edges_lead_down(graph):
    sizes, edges = graph
    found = layout(sizes, edges, GAP)
    extents = []
    for (width, height), (x, y) in zip(sizes, found.boxes, strict=True):
        extents.append((x - width / 2, x + width / 2, y - height / 2, y + height / 2))
        assert -1e-6 <= extents[-1][0] <= extents[-1][1] <= found.width + 1e-6
        assert -1e-6 <= extents[-1][2] <= extents[-1][3] <= found.height + 1e-6
    for place, (left, right, top, bottom) in enumerate(extents):
        for other in extents[:place]:
            apart = left >= other[1] + GAP[0] - 1e-6 or other[0] >= right + GAP[0] - 1e-6
            assert apart or top >= other[3] or other[2] >= bottom
    for (start, end), points in zip(edges, found.arrows, strict=True):
        assert points[0] == (found.boxes[start][0], extents[start][3])
        assert points[-1] == (found.boxes[end][0], extents[end][2])
        heights = [y for _, y in points]
        assert heights == sorted(heights)
        assert extents[end][2] - extents[start][3] >= GAP[1] - 1e-6


def test_long_edges_of_deep_graphs_take_few_points():
    count = 400
    edges = [(place, place + 1) for place in range(count - 1)]
    edges += [(place, count - 1) for place in range(count - 2)]
    found = layout([(10, 10)] * count, edges, GAP)
    assert sum(map(len, found.arrows)) < 60 * count


def _picture(svg):
    root = ElementTree.fromstring(svg)
    boxes = [[text.text for text in group.iter(f"{SPACE}text")] for group in root.iter(f"{SPACE}g")]
    kinds = [group.get("class") for group in root.iter(f"{SPACE}g")]
    return root, boxes, kinds


def test_a_picture_shows_what_the_text_for_graphviz_does(tmp_path):
    Same = function_of(ag)
    x, w = ag.ones(2, 3, requires_grad=True), ag.ones(3, 4, requires_grad=True)
    loss = Same.apply(ag.split(x @ w, 2, dim=1)[1]).sum()
    svg = to_svg(loss, names={"a <weight> & more": w})
    root, boxes, kinds = _picture(svg)
    dot = to_dot(loss, names={"a <weight> & more": w})
    assert root.find(f"{SPACE}title").text == f"Backward graph of {len(boxes)} nodes"
    assert kinds.count("leaf") == 2
    assert kinds.count("function") == 1
    for lines in boxes:
        assert '[label="' + "\\n".join(lines) + '"' in dot
    arrows = [path for path in root.findall(f"{SPACE}path") if path.get("marker-end")]
    assert len(arrows) == dot.count(" -> ")
    assert [text.text for text in root.findall(f"{SPACE}text")] == ["1"]
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert svg._repr_svg_() == svg
    svg.save(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text() == svg


def test_a_node_says_where_it_was_made_if_that_was_recorded():
    x = ag.ones(2, requires_grad=True)
    with ag.autograd.set_detect_anomaly(True):
        y = ag.exp(x)
    root, *_ = _picture(to_svg(y))
    (title,) = [group.find(f"{SPACE}title") for group in root.iter(f"{SPACE}g")][:1]
    assert "test_svg.py" in title.text
