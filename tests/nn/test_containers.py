"""Containers of modules and parameters."""

import copy
import pickle
from collections import OrderedDict

import pytest

import asyncgrad as ag
from asyncgrad import nn


def test_sequential_as_a_list():
    a, b, c, d = (nn.Linear(1, 1) for _ in range(4))
    model = nn.Sequential(a, b)
    assert model.append(c) is model
    model.insert(1, d)
    assert list(model) == [a, d, b, c]
    assert model[-1] is c
    assert list(model[1:3]) == [d, b]
    del model[1]
    assert list(model) == [a, b, c]
    assert [name for name, _ in model.named_children()] == ["0", "1", "2"]
    model[0] = d
    assert model[0] is d
    model.extend([a])
    assert len(model) == 4
    with pytest.raises(IndexError):
        model[4]
    with pytest.raises(TypeError, match="str is not a Module"):
        model.append("text")
    with pytest.raises(TypeError, match=r"list is not a Module .*Sequential\(\*layers\)"):
        nn.Sequential([a])


def test_sequential_of_names():
    model = nn.Sequential(OrderedDict(first=nn.Linear(1, 2), second=nn.Tanh()))
    assert list(model.state_dict()) == ["first.weight", "first.bias"]
    assert model[0] is model.first
    assert model(ag.ones(1, 1)).shape == (1, 2)
    del model[0]
    assert [name for name, _ in model.named_children()] == ["0"]


def test_module_list():
    a, b, c = (nn.Linear(1, 1) for _ in range(3))
    modules = nn.ModuleList([a, b])
    modules += [c]
    assert list(modules) == [a, b, c]
    longer = modules + nn.ModuleList([nn.Tanh()])
    assert isinstance(longer, nn.ModuleList)
    assert len(longer) == 4
    assert modules.pop(0) is a
    assert a not in modules
    assert b in modules
    modules.insert(0, a)
    assert isinstance(modules[:2], nn.ModuleList)
    assert [name for name, _ in modules.named_parameters()][:2] == ["0.weight", "0.bias"]
    with pytest.raises(IndexError):
        modules.insert(7, a)
    with pytest.raises(AssertionError):
        modules.insert(0, "text")


def test_module_dict():
    modules = nn.ModuleDict({"a": nn.Tanh()})
    modules["b"] = nn.ReLU()
    modules.update([("c", nn.Sigmoid())])
    assert list(modules) == list(modules.keys()) == ["a", "b", "c"]
    assert isinstance(modules.pop("a"), nn.Tanh)
    assert "a" not in modules
    del modules["b"]
    assert [name for name, _ in modules.items()] == ["c"]
    assert len(modules) == len(modules.values()) == 1
    modules.clear()
    assert not list(modules.children())
    with pytest.raises(TypeError):
        modules.update(3)
    with pytest.raises(TypeError):
        modules["a"] = 3


def test_parameter_containers():
    values = nn.ParameterList([ag.ones(1), nn.Parameter(ag.zeros(2))])
    values.append(ag.ones(3))
    assert [p.shape for p in values] == [(1,), (2,), (3,)]
    assert all(isinstance(p, nn.Parameter) for p in values.parameters())
    assert values[-1] is values[2]
    assert len(values[:2]) == 2
    values[0] = ag.zeros(5)
    assert values[0].shape == (5,)
    named = nn.ParameterDict({"w": ag.ones(2)})
    named["b"] = nn.Parameter(ag.ones(1))
    assert list(named.state_dict()) == list(named.keys()) == ["w", "b"]
    assert "w" in named
    del named["w"]
    assert [key for key, _ in named.items()] == ["b"]
    assert len(named) == len(list(named.values())) == 1


@pytest.mark.torch
def test_lists_show_like_modules_once():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def make(nn):
        alike = [nn.Sequential(nn.Linear(1, 2), nn.ReLU()) for _ in range(3)]
        return nn.ModuleList([nn.Tanh(), *alike, nn.Tanh(), nn.ModuleList()])

    assert repr(make(ag.nn)) == repr(make(torch.nn))


@pytest.mark.torch
def test_sequences_are_joined_repeated_and_shortened():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    found = []
    for m in (ag, torch):
        a, b = m.nn.Sequential(m.nn.ReLU(), m.nn.Tanh()), m.nn.Sequential(m.nn.Sigmoid())
        shown = [str(a + b), str(b * 3), str(2 * b), str(a.pop(0)), str(a)]
        a += b
        b *= 2
        shown += [str(a), str(b)]
        for wrong in (lambda a=a: a.__add__([1]), lambda b=b: b * 0, lambda b=b: b * 1.5):
            with pytest.raises((ValueError, TypeError)) as caught:
                wrong()
            shown.append(caught.type)
        found.append(shown)
    assert found[0] == found[1]


@pytest.mark.torch
def test_dictionaries_of_parameters_do_what_dictionaries_do():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    found = []
    for m in (ag, torch):
        d = m.nn.ParameterDict({"a": m.ones(1), "b": m.ones(2)})
        other = m.nn.ParameterDict({"b": m.ones(3), "c": m.ones(4)})
        seen = [[*reversed(d)], [*(d | other)], [*(other | d)], (d | other)["b"].shape[0]]
        joined = {"z": m.ones(5), "a": 0} | d
        seen.append([type(joined), [*joined], joined["a"].shape[0]])
        same = d.copy()
        seen.append(same["a"] is d["a"])
        d |= other
        seen += [[*d], d.get("x", 3), d.get("a") is d["a"], d.setdefault("a") is d["a"]]
        d.setdefault("e", m.ones(5))
        seen += [d.pop("a").shape[0], d.popitem()[0], [*d], [*d.fromkeys(["x", "y"], m.ones(1))]]
        d.clear()
        found.append([*seen, len(d)])
    assert found[0] == found[1]


def test_parameter_containers_keep_what_is_no_tensor():
    values = nn.ParameterList([ag.ones(2), 3, "a"])
    values.append(nn.Tanh())
    assert [type(value).__name__ for value in values] == ["Parameter", "int", "str", "Tanh"]
    assert list(values.state_dict()) == ["0"]
    values.extend(values)
    assert len(values) == 8
    assert repr(values).split("\n")[1:3] == [
        "    (0): Parameter containing: [asyncgrad.float32 of size 2]",
        "    (1): Object of type: int",
    ]
    with pytest.raises(TypeError):
        values.extend(ag.ones(2))
    named = nn.ParameterDict({"b": 3, "a": ag.ones(1)})
    assert list(named) == ["a", "b"]
    assert "(a): Parameter containing: [asyncgrad.FloatTensor of size 1]" in repr(named)
    assert named.pop("b") == 3
    assert not hasattr(named, "b")
    with pytest.raises(TypeError, match="not a string"):
        named[1] = ag.ones(1)
    for container in (values, named):
        with pytest.raises(RuntimeError, match="should not be called"):
            container(1)
        twin = pickle.loads(pickle.dumps(copy.deepcopy(container)))
        assert repr(twin) == repr(container)


def test_a_module_does_not_take_the_place_of_a_parameter():
    layer = nn.Linear(1, 1)
    with pytest.raises(TypeError, match="as parameter 'weight'"):
        layer.weight = nn.Tanh()
    assert isinstance(layer.weight, nn.Parameter)
