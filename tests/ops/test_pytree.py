"""Trees of leaves."""

from collections import OrderedDict, defaultdict, namedtuple

import pytest

from asyncgrad.ops.tensors.pytree import flatten, spread, tree_map, unflatten

Pair = namedtuple("Pair", ["a", "b"])

TREES = [
    1,
    None,
    (),
    (1, [2, {"x": 3, "y": (4,)}]),
    Pair(1, [2, Pair(3, 4)]),
    OrderedDict(x=1, y=[2]),
    defaultdict(list, x=1, y=2),
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_what_is_taken_apart_is_put_together_again(tree):
    """With its types."""
    leaves, structure = flatten(tree)
    again = unflatten(structure, leaves)
    assert again == tree
    assert type(again) is type(tree)
    assert len(structure) == len(leaves)
    assert flatten(tree_map(lambda leaf: (leaf,)[0], tree)) == (leaves, structure)


def test_a_prefix_is_spread():
    """It may end before the leaves do, and has to fit as far as it goes."""
    _, structure = flatten((1, [2, {"x": 3, "y": 4}]))
    assert spread(0, structure) == [0, 0, 0, 0]
    assert spread((0, None), structure) == [0, None, None, None]
    assert spread((0, [1, {"y": 3, "x": 2}]), structure) == [0, 1, 2, 3]
    for wrong in ((0,), [0, 0], (0, (1, 2)), ((0,), 1), (0, [1, {"x": 2}])):
        assert spread(wrong, structure) is None
    assert spread(Pair(0, 1), flatten(Pair(1, 2))[1]) == [0, 1]
    assert spread((0, 1), flatten(Pair(1, 2))[1]) is None
    assert spread({"x": 0, "y": 1}, flatten(defaultdict(list, x=1, y=2))[1]) is None
