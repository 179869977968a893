"""Small parameters are updated together: the bits, and when they are not."""

import copy

import numpy as np
import pytest

import asyncgrad as ag

SHAPES = [(3, 4), (5,), (), (2, 2, 2), (40, 30)]
KINDS = [
    "Adam",
    "AdamW",
    "Adagrad",
    "RMSprop",
    "Adadelta",
    "Adamax",
    "RAdam",
    "Rprop",
    "NAdam",
    "ASGD",
]


def parameters(dtype=np.float32):
    rng = np.random.default_rng(0)
    return [ag.tensor(rng.standard_normal(s).astype(dtype), requires_grad=True) for s in SHAPES]


def give(leaves, seed, without=()):
    rng = np.random.default_rng(seed)
    for number, leaf in enumerate(leaves):
        value = rng.standard_normal(leaf.shape).astype(leaf.detach().numpy().dtype)
        leaf.grad = None if number in without else ag.tensor(value)


def bits(leaves, optimizers):
    states = [o.state[p] for o in optimizers for g in o.param_groups for p in g["params"]]
    return [leaf.detach().numpy().tobytes() for leaf in leaves] + [
        value.numpy().tobytes() for state in states for _, value in sorted(state.items())
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"maximize": True}])
def test_bits_are_those_of_single_updates(kind, options):
    make = getattr(ag.optim, kind)
    if kind == "Rprop":
        options = {key: value for key, value in options.items() if key == "maximize"}
    joint, single = parameters(), parameters()
    one = make(joint, **options)
    others = [make([leaf], **options) for leaf in single]
    for seed in range(4):
        without = {1} if seed == 2 else ()
        give(joint, seed, without)
        give(single, seed, without)
        one.step()
        for other in others:
            other.step()
        assert bits(joint, [one]) == bits(single, others)


def test_states_lie_side_by_side():
    leaves = parameters()
    optimizer = ag.optim.Adam(leaves)
    give(leaves, 0)
    optimizer.step()
    first, second = (optimizer.state[leaf]["exp_avg"] for leaf in leaves[:2])
    assert first.data_ptr() + first.numel() * 4 == second.data_ptr()


def test_memory_that_others_see_stays():
    leaves = parameters()
    optimizer = ag.optim.Adagrad(leaves)
    seen = optimizer.state[leaves[0]]["sum"].numpy()
    give(leaves, 0)
    optimizer.step()
    assert seen.any()
    assert optimizer.state[leaves[0]]["sum"].numpy().tobytes() == seen.tobytes()


def test_copies_and_loaded_states_go_on_alike():
    leaves = parameters()
    optimizer = ag.optim.Adam(leaves)
    for seed in range(2):
        give(leaves, seed)
        optimizer.step()
    twin_leaves, twin = copy.deepcopy((leaves, optimizer))
    loaded_leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    loaded = ag.optim.Adam(loaded_leaves)
    loaded.load_state_dict(optimizer.state_dict())
    for seed in range(2, 5):
        for tensors, one in ((leaves, optimizer), (twin_leaves, twin), (loaded_leaves, loaded)):
            give(tensors, seed)
            one.step()
    wanted = bits(leaves, [optimizer])
    assert bits(twin_leaves, [twin]) == wanted
    assert bits(loaded_leaves, [loaded]) == wanted


def test_an_error_leaves_the_parameters_before_it_updated():
    class Failing(ag.optim.Adam):
        def _update(self, group, parameter, gradient):
            if parameter is last:
                raise ArithmeticError
            super()._update(group, parameter, gradient)

    *leaves, last = parameters()[:3]
    single = parameters()[:2]
    optimizer, other = Failing([*leaves, last]), ag.optim.Adam(single)
    give([*leaves, last], 0)
    give(single, 0)
    other.step()
    with pytest.raises(ArithmeticError):
        optimizer.step()
    assert bits(leaves, []) == bits(single, [])


def later_amsgrad(optimizer, leaf):
    optimizer.param_groups[0]["amsgrad"] = True


def another_step(optimizer, leaf):
    optimizer.state[leaf]["step"].fill_(7)


def another_rate(optimizer, leaf):
    optimizer.param_groups[0]["lr"] = 0.5


def another_entry(optimizer, leaf):
    optimizer.state[leaf]["exp_avg"] = ag.ones(leaf.shape)


def no_state(optimizer, leaf):
    del optimizer.state[leaf]


def other_values(optimizer, leaf):
    leaf.data = leaf.detach().clone() * 2


def columns(optimizer, leaf):
    leaf.data = ag.tensor(np.asfortranarray(leaf.detach().numpy()))


def held(optimizer, leaf):
    optimizer.held = (leaf * leaf).sum()


CHANGES = [
    later_amsgrad,
    another_step,
    another_rate,
    another_entry,
    no_state,
    other_values,
    columns,
    held,
]


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_steps_is_seen(kind, change):
    make = getattr(ag.optim, kind)
    joint, single = parameters(), parameters()
    one, others = make(joint), [make([leaf]) for leaf in single]
    for seed in range(7):
        give(joint, seed)
        give(single, seed)
        if seed == 3:
            change(one, joint[3])
            if change in {later_amsgrad, another_rate}:
                for other, leaf in zip(others, single, strict=True):
                    change(other, leaf)
            else:
                change(others[3], single[3])
        one.step()
        for other in others:
            other.step()
        assert bits(joint, [one]) == bits(single, others)
        assert [leaf._version for leaf in joint] == [leaf._version for leaf in single]
    if change is held:
        one.held.backward()


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_gradients_of_other_shapes_than_their_parameters(steps):
    """The numbers of elements are the same in all, so that each would get parts of others."""
    pair = [ag.ones(2, requires_grad=True), ag.ones(3, requires_grad=True)]
    optimizer = ag.optim.Adam(pair)
    for _ in range(steps):
        for one in pair:
            one.grad = ag.ones_like(one)
        optimizer.step()
    before = [one.data for one in pair]
    for one, size in zip(pair, (3, 2), strict=True):
        one.data = ag.ones(size)
        one.grad = ag.ones(size)
    for one, values in zip(pair, before, strict=True):
        one.data = values
    with pytest.raises(ValueError, match="could not be broadcast"):
        optimizer.step()


def test_states_of_other_shapes_than_their_parameters():
    optimizers = []
    for sizes in ((2, 3), (3, 2)):
        pair = [ag.ones(size, requires_grad=True) for size in sizes]
        optimizers.append(ag.optim.Adam(pair))
        for one in pair:
            one.grad = ag.ones_like(one)
        optimizers[-1].step()
    optimizers[0].load_state_dict(optimizers[1].state_dict())
    with pytest.raises(ValueError, match="could not be broadcast"):
        optimizers[0].step()
