"""A leaf's accumulator, and what threads share of a tensor."""

import sys
import threading

import asyncgrad as ag
from asyncgrad.core.variable import gradient_edge

#: Leaves of a round, and rounds. If threads may switch where two would make an accumulator for the
#: same leaf, they do so in every third to fifth round.
_LEAVES, _ROUNDS = 3_000, 30


def test_threads_that_need_a_leafs_accumulator_at_the_same_time_get_one():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(_ROUNDS):
            leaves = [ag.ones(1, requires_grad=True) for _ in range(_LEAVES)]
            barrier, found = threading.Barrier(2), ([], [])

            def ask(edges, leaves=leaves, barrier=barrier):
                barrier.wait()
                edges.extend(map(gradient_edge, leaves))

            threads = [threading.Thread(target=ask, args=(edges,)) for edges in found]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(found[0]) == _LEAVES
            assert all(one is other for one, other in zip(*found, strict=True))
    finally:
        sys.setswitchinterval(usual)


def test_views_that_threads_take_of_one_tensor_are_all_known():
    """Else a change of the base in place would leave the edge of such a view as it was."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(_ROUNDS):
            base = ag.ones(2, requires_grad=True) * 1
            barrier, views = threading.Barrier(4), []

            def take(base=base, barrier=barrier, views=views):
                barrier.wait()
                for _ in range(70):
                    views.append(base[0])

            threads = [threading.Thread(target=take) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert set(views) <= base._counter.sharers()
    finally:
        sys.setswitchinterval(usual)


def test_a_leaf_that_was_frozen_for_a_while_has_no_place_for_hooks_left():
    """Passes would run its accumulator in the general way from then on, which takes longer."""
    leaf = ag.ones(2, requires_grad=True)
    earlier = leaf * 2
    accumulator = earlier.grad_fn.next_functions[0][0]
    leaf.requires_grad_(False)
    assert accumulator.extras is not None
    leaf.requires_grad_(True)
    assert accumulator.extras is None
    seen = []
    leaf.register_hook(seen.append)
    leaf.requires_grad_(False)
    leaf.requires_grad_(True)
    for graph in (earlier, leaf * 3):
        graph.sum().backward()
    assert [gradient.tolist() for gradient in seen] == [[2, 2], [3, 3]]


def test_what_users_put_at_a_leaf_stays_when_it_is_frozen_for_a_while():
    """Hooks that run after accumulation, dictionaries that were asked for while they were empty."""
    leaf = ag.ones(2, requires_grad=True)
    earlier = leaf * 2
    accumulator = earlier.grad_fn.next_functions[0][0]
    leaf.requires_grad_(False)
    metadata = accumulator.metadata
    leaf.requires_grad_(True)
    metadata["made"] = 1
    assert accumulator.metadata == {"made": 1}
    other, seen = ag.ones(2, requires_grad=True), []
    other.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
    graph = other * 3
    for required in (True, False, True):
        other.requires_grad_(required)
    graph.sum().backward()
    assert seen == [[3, 3]]


def test_hooks_are_called_in_graphs_that_a_leaf_has_left_though_it_was_frozen_for_a_while():
    """Its accumulators share their hooks, those that are registered later, too."""
    leaf, seen = ag.ones(2, requires_grad=True), []
    graphs = [leaf * 2]
    leaf.requires_grad_(False)
    leaf.data = leaf.data.double()
    leaf.data = leaf.data.float()
    leaf.requires_grad_(True)
    graphs.append(leaf * 3)
    leaf.requires_grad_(False)
    leaf.requires_grad_(True)
    leaf.register_hook(lambda gradient: seen.append(gradient.tolist()))
    for graph in graphs:
        graph.sum().backward()
    assert seen == [[2, 2], [3, 3]]


def test_a_pass_gives_a_frozen_leaf_no_place_for_hooks():
    """It would stay when the leaf requires grad again, and each later pass take longer."""
    leaf = ag.ones(2, requires_grad=True)
    earlier = leaf * 2
    accumulator = earlier.grad_fn.next_functions[0][0]
    leaf.requires_grad_(False)
    earlier.sum().backward()
    assert leaf.grad is None
    leaf.requires_grad_(True)
    assert accumulator.extras is None
