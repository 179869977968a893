"""Modules: what they hold, how they are walked, what they refuse."""

import asyncio
import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import asyncgrad as ag
from asyncgrad import nn


class Pair(nn.Module):
    """Two children that share a parameter, a buffer of each kind, and a plain attribute."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.second = nn.Linear(2, 3)
        self.second.weight = self.first.weight
        self.register_buffer("seen", ag.zeros(()))
        self.register_buffer("scratch", ag.zeros(2), persistent=False)
        self.gain = nn.Parameter(ag.ones(()))
        self.label = "pair"

    def forward(self, x):
        return self.gain * (self.first(x) + self.second(x))


def snapshot(module):
    return (
        dict(module.named_parameters()),
        dict(module.named_buffers()),
        dict(module.named_modules()),
        {k: v for k, v in vars(module).items() if not k.startswith("_")},
    )


def test_walks_name_everything_once():
    model = Pair()
    assert [name for name, _ in model.named_modules()] == ["", "first", "second"]
    assert [name for name, _ in model.named_parameters()] == [
        "gain",
        "first.weight",
        "first.bias",
        "second.bias",
    ]
    assert len(list(model.named_parameters(remove_duplicate=False))) == 5
    assert [name for name, _ in model.named_parameters(recurse=False)] == ["gain"]
    assert [name for name, _ in model.named_buffers(prefix="model")] == [
        "model.seen",
        "model.scratch",
    ]
    assert list(model.children()) == [model.first, model.second]
    assert list(model.modules()) == [model, model.first, model.second]


def test_state_dict_leaves_out_what_is_not_persistent_and_shares_memory():
    model = Pair()
    state = model.state_dict()
    assert list(state) == [
        "gain",
        "seen",
        "first.weight",
        "first.bias",
        "second.weight",
        "second.bias",
    ]
    assert state["gain"]._array is model.gain._array
    assert not any(tensor.requires_grad for tensor in state.values())
    assert model.state_dict(keep_vars=True)["gain"] is model.gain
    assert next(iter(model.state_dict(prefix="a."))) == "a.gain"


def test_assignment_moves_a_name_from_kind_to_kind():
    model = Pair()
    model.label = nn.Parameter(ag.ones(1))
    assert "label" in dict(model.named_parameters())
    assert "label" not in vars(model)
    model.seen = nn.Linear(1, 1)
    assert "seen" not in dict(model.named_buffers())
    assert model.get_submodule("seen") is model.seen
    model.gain = None
    assert model.gain is None
    assert "gain" not in model.state_dict()
    del model.first
    assert not hasattr(model, "first")


def test_a_buffer_is_replaced_by_assignment():
    model = Pair()
    model.seen = ag.ones(())
    assert model.get_buffer("seen").item() == 1.0
    model.scratch = None
    assert [name for name, _ in model.named_buffers()] == ["seen"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda m: setattr(m, "gain", ag.ones(())), TypeError),
        (lambda m: setattr(m, "gain", 1.0), TypeError),
        (lambda m: setattr(m, "first", "text"), TypeError),
        (lambda m: setattr(m, "gain", nn.Buffer(ag.ones(()))), TypeError),
        (lambda m: setattr(m, "first", nn.Buffer(ag.ones(()))), TypeError),
        (lambda m: setattr(m, "label", nn.Buffer(ag.ones(()))), KeyError),
        (lambda m: setattr(m, "seen", [1]), TypeError),
        (lambda m: m.register_parameter("label", nn.Parameter(ag.ones(1))), KeyError),
        (lambda m: m.register_parameter("a.b", nn.Parameter(ag.ones(1))), KeyError),
        (lambda m: m.register_parameter("", nn.Parameter(ag.ones(1))), KeyError),
        (lambda m: m.register_parameter(3, nn.Parameter(ag.ones(1))), TypeError),
        (lambda m: m.register_parameter("new", ag.ones(1)), TypeError),
        (lambda m: m.register_buffer("new", 1.0), TypeError),
        (lambda m: m.register_buffer("forward", ag.ones(1)), KeyError),
        (lambda m: m.add_module("new", ag.ones(1)), TypeError),
        (lambda m: m.get_submodule("first.nothing"), AttributeError),
        (lambda m: m.get_parameter("first.nothing"), AttributeError),
        (lambda m: m.get_buffer("gain"), AttributeError),
        (lambda m: m.nothing, AttributeError),
        (lambda m: delattr(m, "nothing"), AttributeError),
        (lambda m: m.train("yes"), ValueError),
        (lambda m: m.to(ag.int64), TypeError),
        (lambda m: m.load_state_dict([]), TypeError),
    ],
)
def test_what_is_refused_changes_nothing(change, error):
    model = Pair()
    before = snapshot(model)
    with pytest.raises(error):
        change(model)
    assert snapshot(model) == before


def test_members_before_init_are_refused():
    class Early(nn.Module):
        def __init__(self, member):
            self.member = member
            super().__init__()

    for member in (nn.Parameter(ag.ones(1)), nn.Linear(1, 1)):
        with pytest.raises(AttributeError, match=r"before Module.__init__\(\) call. Call super"):
            Early(member)


def test_forward_must_be_defined():
    with pytest.raises(NotImplementedError, match="missing the required"):
        nn.Module()(1)


def test_loading_names_every_difference():
    model = Pair()
    state = model.state_dict()
    del state["gain"]
    state["more"] = ag.ones(1)
    state["first.more"] = ag.ones(1)
    state["first.bias"] = ag.ones(4)
    before = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    with pytest.raises(RuntimeError) as caught:
        model.load_state_dict(state)
    message = str(caught.value)
    assert 'Missing key(s) in state_dict: "gain"' in message
    assert 'Unexpected key(s) in state_dict: "more", "first.more"' in message
    assert "size mismatch for first.bias" in message
    state["first.bias"] = ag.full((3,), 7.0)
    result = model.load_state_dict(state, strict=False)
    assert result.missing_keys == ["gain"]
    assert result.unexpected_keys == ["more", "first.more"]
    assert (model.first.bias.detach().numpy() == 7.0).all()
    np.testing.assert_array_equal(model.gain.item(), before["gain"])


def test_a_number_is_loaded_from_one_dimension():
    """As in PyTorch, for the sake of its oldest files."""
    model = Pair()
    model.load_state_dict({"gain": ag.tensor([5.0])}, strict=False)
    assert model.gain.item() == 5
    with pytest.raises(RuntimeError, match="size mismatch for gain"):
        model.load_state_dict({"gain": ag.ones(1, 1)}, strict=False)
    with pytest.raises(RuntimeError, match="size mismatch for gain"):
        model.load_state_dict({"gain": ag.ones(2)}, strict=False)


def test_loading_copies_and_assigns_when_asked():
    model, other = Pair(), Pair()
    state = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    weight, array = model.first.weight, model.first.weight._array
    assert str(model.load_state_dict(state)) == "<All keys matched successfully>"
    assert model.first.weight is weight
    assert model.first.weight._array is array
    np.testing.assert_array_equal(array, other.first.weight._array)
    model.load_state_dict(state, assign=True)
    assert isinstance(model.first.weight, nn.Parameter)
    assert model.first.weight._array is state["first.weight"]._array
    assert model.first.weight.requires_grad


def test_loading_counts_as_a_change_of_saved_values():
    layer = nn.Linear(2, 2)
    y = layer(ag.ones(1, 2, requires_grad=True)).sum()
    layer.load_state_dict({"weight": ag.ones(2, 2), "bias": ag.ones(2)})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_extra_state_travels():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    model, other = nn.Sequential(Counting()), nn.Sequential(Counting())
    model[0].count = 3
    state = model.state_dict()
    assert state == {"0._extra_state": {"count": 3}}
    other.load_state_dict(state)
    assert other[0].count == 3
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({})


def test_train_eval_and_requires_grad_reach_all():
    model = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Linear(1, 1)))
    model.eval()
    assert not any(module.training for module in model.modules())
    model.train()
    assert all(module.training for module in model.modules())
    model.requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_apply_calls_children_first():
    model = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Tanh()))
    seen = []
    assert model.apply(seen.append) is model
    assert seen == [model[0], model[1][0], model[1], model]


def test_zero_grad_drops_or_clears():
    layer = nn.Linear(2, 1)
    layer(ag.ones(1, 2)).sum().backward()
    layer.zero_grad(set_to_none=False)
    assert (layer.weight.grad.numpy() == 0).all()
    layer.zero_grad()
    assert layer.weight.grad is None


def test_conversion_keeps_parameters_and_skips_integers():
    model = Pair()
    model.register_buffer("count", ag.tensor(3))
    weight = model.first.weight
    model(ag.ones(1, 2)).sum().backward()
    assert model.double() is model
    assert model.first.weight is weight
    assert weight.dtype == weight.grad.dtype == np.float64
    assert model.count.dtype == np.int64
    model(ag.ones(1, 2, dtype=ag.float64)).sum().backward()
    assert model.to(ag.ones(1)).gain.dtype == np.float32
    assert model.to("cpu", ag.float64).gain.dtype == np.float64
    assert model.half().seen.dtype == np.float16
    assert model.to(ag.complex64).float().gain.dtype == np.complex64


def test_parameters_of_tensors():
    with pytest.raises(TypeError, match="cannot create a Parameter from list"):
        nn.Parameter([1.0])
    with pytest.raises(RuntimeError, match="floating point"):
        nn.Parameter(ag.arange(3))
    assert not nn.Parameter(ag.arange(3), requires_grad=False).requires_grad
    assert nn.Parameter().shape == (0,)
    data = ag.zeros(2)
    parameter = nn.Parameter(data)
    assert parameter.is_leaf
    assert parameter.requires_grad
    data += 1.0
    assert (parameter.detach().numpy() == 1.0).all()
    assert parameter._version == data._version == 1
    parameter.note = "mine"
    assert parameter.note == "mine"
    assert repr(parameter).startswith("Parameter containing:\ntensor(")


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_equal_and_independent(duplicate):
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    model[2].weight = model[0].weight
    model[0].weight.note = "shared"
    x = ag.ones(1, 2)
    model(x).sum().backward()
    other = duplicate(model)
    np.testing.assert_array_equal(other(x).detach().numpy(), model(x).detach().numpy())
    assert other[2].weight is other[0].weight
    assert other[0].weight is not model[0].weight
    assert not np.shares_memory(other[0].weight._array, model[0].weight._array)
    other(x).sum().backward()
    np.testing.assert_array_equal(other[0].bias.grad.numpy(), model[0].bias.grad.numpy())


def test_pickles_keep_what_was_attached_to_a_parameter():
    parameter = nn.Parameter(ag.ones(2), requires_grad=False)
    parameter.note = "mine"
    other = pickle.loads(pickle.dumps(parameter))
    assert isinstance(other, nn.Parameter)
    assert other.note == "mine"
    assert not other.requires_grad


def scale(module, args):
    return (args[0] * 2.0,)


def test_hooks_of_a_copy_do_not_collide_with_new_ones():
    layer = nn.Identity()
    layer.register_forward_pre_hook(scale)
    other = copy.deepcopy(layer)
    for _ in range(3):
        other.register_forward_pre_hook(scale)
    assert other(ag.ones(())).item() == 16.0
    assert layer(ag.ones(())).item() == 2.0


def test_forward_hooks_in_order():
    layer = nn.Identity()
    calls = []
    layer.register_forward_pre_hook(lambda m, args: calls.append(("pre", args)))
    layer.register_forward_pre_hook(lambda m, args: args[0] + 1, prepend=True)
    layer.register_forward_hook(lambda m, args, out: calls.append(("post", out)))
    last = layer.register_forward_hook(lambda m, args, out: out * 10)
    assert layer(1) == 20
    assert calls == [("pre", (2,)), ("post", 2)]
    last.remove()
    assert layer(1) == 2


def test_hooks_with_keyword_arguments():
    class Scaled(nn.Module):
        def forward(self, x, *, factor=1):
            return x * factor

    layer = Scaled()
    layer.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"factor": kwargs["factor"] + 1}), with_kwargs=True
    )
    layer.register_forward_hook(
        lambda m, args, kwargs, out: (out, kwargs["factor"]), with_kwargs=True
    )
    assert layer(3, factor=4) == (15, 5)
    layer.register_forward_pre_hook(lambda m, args, kwargs: args, with_kwargs=True)
    with pytest.raises(RuntimeError, match="forward pre-hook must return None or a tuple"):
        layer(3, factor=4)


def test_always_called_hooks_are_called_once_after_an_error():
    class Failing(nn.Module):
        def forward(self, x):
            raise ZeroDivisionError

    calls = []
    layer = Failing()
    layer.register_forward_hook(lambda m, args, out: calls.append("never"))
    layer.register_forward_hook(lambda m, args, out: calls.append(out), always_call=True)
    with pytest.raises(ZeroDivisionError):
        layer(1)
    assert calls == [None]


def test_errors_of_hooks_that_are_always_called_hide_no_other():
    """They get what the hooks before the error have left of the output."""
    calls = []

    def failing(module, args, output):
        calls.append(output)
        raise ZeroDivisionError

    layer = nn.Identity()
    layer.register_forward_hook(lambda m, args, out: out + 1)
    layer.register_forward_hook(lambda m, args, out: {}[out])
    layer.register_forward_hook(failing, always_call=True)
    layer.register_forward_hook(lambda m, args, out: calls.append(out), always_call=True)
    with pytest.warns(UserWarning, match="was silenced"), pytest.raises(KeyError):
        layer(1)
    assert calls == [2, 2]


@pytest.mark.asyncio
async def test_forward_may_be_a_coroutine_function():
    class Slow(nn.Module):
        def forward(self, x):
            return self.compute(x)

        async def compute(self, x):
            await asyncio.sleep(0)
            if x is None:
                raise ZeroDivisionError
            return x + 1

    layer = Slow()
    assert await layer(1) == 2
    calls = []
    layer.register_forward_hook(lambda m, args, out: out * 2)
    layer.register_forward_hook(lambda m, args, out: calls.append(out), always_call=True)
    assert await layer(1) == 4
    with pytest.raises(ZeroDivisionError):
        await layer(None)
    assert calls == [4, None]


def test_the_tree_is_printed():
    model = nn.Sequential(nn.Linear(2, 3), nn.ModuleDict({"a": nn.Tanh()}))
    assert repr(model) == (
        "Sequential(\n"
        "  (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (1): ModuleDict(\n"
        "    (a): Tanh()\n"
        "  )\n"
        ")"
    )
    assert "training" in dir(model)
    assert "weight" in dir(model[0])


def test_blank_lines_in_a_printed_tree_stay_empty():
    class Words(nn.Module):
        def extra_repr(self):
            return "one\n\ntwo\n"

    assert repr(nn.Sequential(nn.Sequential(Words()))).split("\n") == [
        "Sequential(", "  (0): Sequential(", "    (0): Words(", "      one", "", "      two", "",
        "    )", "  )", ")",
    ]  # fmt: skip


def test_a_module_that_was_not_initialised_says_so():
    class Bare(ag.nn.Module):
        def __init__(self):
            pass

    with pytest.raises(AttributeError, match="_forward_hooks"):
        Bare()(1)
    with pytest.raises(AttributeError, match="_parameters"):
        list(Bare().parameters())


def test_what_fails_while_a_state_is_loaded_is_collected():
    layer = ag.nn.Linear(1, 1)
    state = dict.fromkeys(("weight", "bias"), ag.ones(1, 1, dtype=ag.int64))
    with pytest.raises(RuntimeError, match=r"(?s)named \"weight\".*size mismatch for bias"):
        layer.load_state_dict(state, assign=True)


def test_state_dicts_take_arguments_by_position():
    layer = ag.nn.Linear(1, 1)
    given = {}
    with pytest.warns(FutureWarning, match="use kwargs instead"):
        assert layer.state_dict(given, "a.", True) is given
    assert given["a.weight"] is layer.weight


def test_conversions_take_the_arguments_of_a_tensors():
    """In either, a dtype after a dtype is not taken for `non_blocking`."""
    layer = ag.nn.Linear(1, 1)
    for convert in (layer.to, layer.weight.to):
        for args, kwargs in (
            ((), {"foo": 3}), ((ag.float64, ag.float32), {}), (("cpu", "cpu"), {}),
            ((), {"non_blocking": 1}), ((ag.float64,), {"dtype": ag.float64}),
        ):  # fmt: skip
            with pytest.raises(TypeError):
                convert(*args, **kwargs)
        assert convert("cpu", ag.float64, True, memory_format=None).double() is not None
    assert layer.weight.dtype == ag.float64
    assert layer.to(memory_format=ag.channels_last) is layer


def test_a_state_dict_is_an_ordered_dictionary():
    assert type(nn.Linear(1, 1).state_dict()) is OrderedDict


def test_a_buffer_that_a_module_does_not_have_is_found_as_none():
    layer = nn.Module()
    layer.register_buffer("absent", None)
    assert layer.get_buffer("absent") is None
    with pytest.raises(AttributeError, match="`other` is not a buffer"):
        layer.get_buffer("other")


def test_a_function_that_changes_all_in_place_is_noticed():
    """Passes that need the old values of parameters, gradients and buffers say so."""
    norm = ag.nn.BatchNorm1d(2)
    norm.weight.grad = ag.ones(2)
    tensors = (norm.weight, norm.weight.grad, norm.running_mean)
    before = [tensor._version for tensor in tensors]
    norm._apply(lambda tensor: tensor.mul_(2))
    assert [tensor._version for tensor in tensors] == [version + 1 for version in before]
    assert norm.weight.tolist() == norm.weight.grad.tolist() == [2.0, 2.0]
    assert norm.weight.is_leaf
    assert norm.weight.requires_grad


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))]
)
def test_a_copied_buffer_is_a_buffer(duplicate):
    """It was a plain tensor, which a module did not register."""
    buffer = nn.Buffer(ag.ones(2), persistent=False)
    module = nn.Module()
    module.offset = copied = duplicate(buffer)
    assert type(copied) is nn.Buffer
    assert not copied.persistent
    assert [*module.buffers()] == [copied]
    assert not module.state_dict()


def test_a_buffer_is_copied_once_and_with_its_gradient():
    buffer = nn.Buffer(ag.ones(2, requires_grad=True))
    buffer.grad = ag.full((2,), 3.0)
    first, second = copy.deepcopy([buffer, buffer])
    assert first is second
    assert first.requires_grad
    assert first.grad.tolist() == [3.0, 3.0]
