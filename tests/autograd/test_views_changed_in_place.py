"""Every kind of view, changed in every way, in every mode: as in PyTorch.

What can be seen of it are versions, bases, who needs a gradient and which one it is, and errors.
"""

import itertools

import pytest
from plain_parity import attempted, numbers, plainly

import asyncgrad as ag

VIEWS = {
    "select": lambda x: x[0],
    "slice": lambda x: x[:, 1:],
    "t": lambda x: x.t(),
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(2, 6),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x.squeeze(),
    "narrow": lambda x: x.narrow(0, 0, 2),
    "diagonal": lambda x: x.diagonal(),
    "permute": lambda x: x.permute(1, 0),
    "movedim": lambda x: x.movedim(0, 1),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "detach": lambda x: x.detach(),
    "split": lambda x: x.split(2)[0],
    "chunk": lambda x: x.chunk(2)[1],
    "unbind": lambda x: x.unbind()[1],
    "as_strided": lambda x: x.as_strided((2, 2), (5, 2), 1),
    "as_strided of a view": lambda x: x[1:].t().as_strided((2, 2), (4, 1)),
    "view of as_strided": lambda x: x[1:].as_strided((3, 2), (4, 1), 0)[1:].view(-1),
    "of a view": lambda x: x[1:][0][1:3],
}
CHANGES = {
    "mul": lambda v: v.mul_(2),
    "zero": lambda v: v.zero_(),
    "sin": lambda v: v.sin_(),
    "set": lambda v: v.__setitem__(0, 1.5),
    "copy": lambda v: v.copy_(v.detach() * 2),
    "add itself": lambda v: v.add_(v.clone()),
}
TURNS = {
    "squeeze": lambda v: v.squeeze_(),
    "unsqueeze": lambda v: v.unsqueeze_(0),
    "transpose": lambda v: v.transpose_(0, -1),
    "swapaxes": lambda v: v.swapaxes_(axis0=0, axis1=-1),
    "swapdims": lambda v: v.swapdims_(-1, 0),
    "t": lambda v: v.t_(),
    "twice": lambda v: v.unsqueeze_(1).transpose_(0, 1),
}
BASES = {
    "computed": lambda T, x: x * 1,
    "leaf": lambda T, x: x,
    "constant": lambda T, x: numbers(T, 3, 4),
    "view": lambda T, x: (x * 1)[:],
}
#: Whether the view is made, and whether it is changed, with grad mode on.
MODES = list(itertools.product((True, False), repeat=2))


def _facts(T, x, base, view):
    facts = [view._version, base._version, view._is_view(), view._base is base]
    facts += [view.requires_grad, base.requires_grad, view.is_leaf, view.grad_fn is None]
    gradients = [
        T.autograd.grad((y * y).sum(), x, allow_unused=True, retain_graph=True)
        for y in (base, view)
        if y.requires_grad and not base.is_leaf
    ]
    return facts, base.detach().clone(), view.detach().clone(), gradients


def _view_changed(T, kind, view_of, change, made, changed):
    x = numbers(T, 3, 4).clone().requires_grad_()
    base = BASES[kind](T, x)
    with T.set_grad_enabled(made):
        view = view_of(base)
    with T.set_grad_enabled(changed):
        change(view)
    return _facts(T, x, base, view)


def _changed_views_of(kind, changes=CHANGES, views=VIEWS):
    def program(T, log):
        for view, change, modes in itertools.product(views.values(), changes.values(), MODES):
            attempted(log, "", _view_changed, T, kind, view, change, *modes)

    return plainly(program)


test_views_of_what_was_computed_are_changed = _changed_views_of("computed")
test_views_of_leaves_are_changed = _changed_views_of("leaf")
test_views_of_constants_are_changed = _changed_views_of("constant")
test_views_of_views_are_changed = _changed_views_of("view")
_TURNED = VIEWS | {"expand": lambda x: x[:1].expand(3, 4), "repeated": lambda x: x[0].expand(2, 4)}
test_views_of_what_was_computed_are_turned = _changed_views_of("computed", TURNS, _TURNED)
test_views_of_leaves_are_turned = _changed_views_of("leaf", TURNS, _TURNED)
test_views_of_constants_are_turned = _changed_views_of("constant", TURNS, _TURNED)
test_views_of_views_are_turned = _changed_views_of("view", TURNS, _TURNED)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_view_that_is_turned_retains_the_gradient_of_what_it_has_become(recorded):
    """PyTorch's hook stays where the view led to before; ours moves, as for any change."""
    x = ag.ones(2, 3, requires_grad=True)
    view = (x * 2)[:1]
    view.retain_grad()
    with ag.set_grad_enabled(recorded):
        view.squeeze_()
    ag.sync.backward((view * 3).sum())
    assert view.grad.tolist() == [3.0, 3.0, 3.0]
    assert x.grad.tolist() == [[6.0, 6.0, 6.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("turn", ["t_", "unsqueeze_", "squeeze_"])
@pytest.mark.parametrize("mode", [ag.no_grad, ag.inference_mode])
def test_what_was_computed_and_is_turned_without_a_record_has_the_right_gradient(mode, turn):
    """PyTorch's function gets a gradient of the new shape, which it may refuse."""
    x = ag.ones(1, 3, requires_grad=True)
    y = x * 2
    with mode():
        getattr(y, turn)(*((0,) if turn == "unsqueeze_" else ()))
    weights = ag.arange(3.0).reshape(y.shape)
    ag.sync.backward((y * weights).sum())
    assert x.grad.tolist() == [[0.0, 2.0, 4.0]]


@plainly
def test_a_base_is_changed_under_its_views(T, log):
    def program(view_of, change):
        x = numbers(T, 3, 4).clone().requires_grad_()
        base = x.clone()
        view = view_of(base)
        change(base)
        return _facts(T, x, base, view)

    for view_of, change in itertools.product(VIEWS.values(), CHANGES.values()):
        attempted(log, "", program, view_of, change)


@plainly
def test_a_constant_becomes_part_of_a_graph_under_its_views(T, log):
    def program(view_of):
        x = numbers(T, 3, 4).clone().requires_grad_()
        base = numbers(T, 3, 4, seed=3).clone()
        view, changed = view_of(base), view_of(base)
        changed.mul_(view_of(x))
        return _facts(T, x, base, view)

    for view_of in VIEWS.values():
        attempted(log, "", program, view_of)


@plainly
def test_views_and_inference_mode(T, log):
    """Views made in it of tensors from outside, outside of tensors from in it, and both."""

    def program(view_of, change, inside, made, changed):
        x = numbers(T, 3, 4).clone().requires_grad_()
        with T.inference_mode(inside):
            base = x * 1
        with T.inference_mode(made):
            view = view_of(base)
        with T.inference_mode(changed):
            change(view)
        return view.is_inference(), base.is_inference(), view.requires_grad, base.detach().clone()

    views = [view for name, view in VIEWS.items() if name != "detach"]
    places = itertools.product((True, False), repeat=3)
    for view, change, where in itertools.product(views, CHANGES.values(), list(places)):
        attempted(log, "", program, view, change, *where)


def test_a_refused_change_leaves_the_view_as_it_was():
    base = ag.ones(3, 2, requires_grad=True) * 1
    view = base.unbind()[0]
    with pytest.raises(RuntimeError, match="multiple views"):
        view.mul_(2)
    assert base.tolist() == [[1.0, 1.0]] * 3
    assert view._version == base._version == 0


@plainly
def test_a_view_whose_base_has_changed_is_no_leaf_to_be_made_one(T, log):
    def program(ask):
        x = numbers(T, 3, 4).clone().requires_grad_()
        base = x * 1
        view = base[1:]
        with T.no_grad():
            base.mul_(2)
        asked = attempted(log, "", ask, view)
        return asked, view.is_leaf, T.autograd.grad((view * 3).sum(), x)

    for ask in (
        lambda view: view.requires_grad_(),
        lambda view: view.requires_grad_(False),
        lambda view: setattr(view, "requires_grad", True),
        lambda view: view.output_nr,
    ):
        log(program(ask))


def test_a_view_taken_before_its_base_was_turned_is_refused_and_not_misread():
    """PyTorch finds its place in memory; what is kept here is the way from the base to it."""
    refused = pytest.raises(RuntimeError, match="axes of its base have been changed in place")
    base = ag.ones(2, 2)
    before = base[0]
    part = before[:1]
    base.t_()
    after = base[0]
    w = ag.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with refused:
        before.mul_(w[0])
    base.mul_(w)
    ag.sync.backward((after * ag.tensor([1.0, 10.0])).sum())
    assert w.grad.tolist() == [[1.0, 10.0], [0.0, 0.0]]
    for view in (before, part):
        with refused:
            view * 1
