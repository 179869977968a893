"""Modules that declare a function of `nn.functional` and their options."""

from __future__ import annotations

import copy
import inspect
import pickle
import traceback

import pytest

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.nn import functional as F
from asyncgrad.nn.function_module import FunctionModule


def declared():
    kinds = [FunctionModule]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return sorted({kind for kind in kinds if kind.__module__.startswith("asyncgrad.nn")}, key=repr)


def is_made(kind):
    return kind.forward.__code__.co_filename.startswith("<forward of")


@pytest.mark.parametrize("kind", [*filter(is_made, declared())], ids=lambda kind: kind.__name__)
def test_forward_has_a_source_that_calls_a_function(kind):
    """Editors, debuggers and tracebacks show it."""
    assert "F." in inspect.getsource(kind.forward)
    assert kind.forward.__qualname__.endswith(".forward")
    assert kind.forward.__module__.startswith("asyncgrad.nn.")
    assert kind.forward.__doc__


def test_options_become_attributes_repr_and_arguments():
    class Bounded(FunctionModule, function=F.hardtanh):
        def __init__(self, min_val: float, max_val: float = 2.0, inplace: bool = False) -> None:
            self._keep(locals())

    module = Bounded(-1.0)
    assert repr(module) == "Bounded(min_val=-1.0, max_val=2.0)"
    assert [*inspect.signature(Bounded.forward).parameters] == ["self", "input"]
    x = ag.tensor([-3.0, 0.5, 3.0])
    assert module(x).tolist() == [-1.0, 0.5, 2.0]
    module.max_val = 1.0
    assert module(x).tolist() == [-1.0, 0.5, 1.0]
    module.inplace = True
    module(x)
    assert x.tolist() == [-1.0, 0.5, 1.0]
    assert repr(module) == "Bounded(min_val=-1.0, max_val=1.0, inplace=True)"


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_an_axis_that_is_not_given_is_chosen_with_a_warning(name):
    with pytest.warns(UserWarning, match=f"Implicit dimension choice for {name} has"):
        found = getattr(F, name)(ag.ones(2, 1))
    assert (found == getattr(F, name)(ag.ones(2, 1), dim=1)).all()


def test_options_may_be_buffers():
    loss = nn.CrossEntropyLoss(weight=ag.tensor([1.0, 3.0]))
    assert [*loss.state_dict()] == ["weight"]
    assert [*nn.CrossEntropyLoss()._buffers] == ["weight"]
    again = pickle.loads(pickle.dumps(copy.deepcopy(loss)))
    assert again.weight.tolist() == [1.0, 3.0]
    assert again.ignore_index == -100


def test_forward_calls_what_the_function_is_at_the_time(monkeypatch):
    """Programs and tests may replace a function of `nn.functional`."""
    module = nn.ReLU()
    monkeypatch.setattr(F, "relu", lambda input, inplace: (input, inplace))
    assert module(3) == (3, False)


def test_a_subclass_may_have_arguments_and_a_forward_of_its_own():
    class Scaled(nn.HuberLoss):
        def __init__(self, factor: float) -> None:
            super().__init__("sum", delta=0.5)
            self.factor = factor

        def forward(self, input, target):
            return self.factor * super().forward(input, target)

    x = ag.tensor([1.0, 2.0])
    plain = nn.HuberLoss("sum", delta=0.5)(x, x * 0)
    assert Scaled(3.0)(x, x * 0).item() == 3 * plain.item()
    assert repr(Scaled(3.0)) == "Scaled()"


def test_arguments_of_a_class_go_to_the_base_that_declares_them():
    """A subclass of a layer may have other bases, which take arguments of their own."""

    class Tagged:
        def __init_subclass__(cls, tag: int = 0, **arguments: object) -> None:
            super().__init_subclass__(**arguments)
            cls._tag = tag

    class Line(nn.Conv1d, Tagged, tag=1): ...

    class Image(Line, tag=2, ndim=2): ...

    class Relu(nn.ReLU, Tagged, tag=3): ...

    assert (Line._tag, Image._tag, Relu._tag) == (1, 2, 3)
    assert (Line._ndim, Image._ndim) == (1, 2)
    for base in (nn.Conv1d, nn.ReLU, nn.ZeroPad1d):
        with pytest.raises(TypeError, match="takes no keyword arguments"):

            class Wrong(base, tag=1): ...


def test_repr_says_that_there_is_a_bias_even_if_it_is_computed():
    layer = nn.utils.prune.identity(nn.Linear(2, 1), "bias")
    assert repr(layer) == "Linear(in_features=2, out_features=1, bias=True)"


def test_a_traceback_shows_the_call():
    with pytest.raises(RuntimeError, match="Expected 3D or 4D") as caught:
        nn.MaxPool2d(2)(ag.ones(3))
    assert "F.max_pool2d(input, self.kernel_size" in "".join(traceback.format_tb(caught.tb))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.MultiheadAttention, (4, 2)), (nn.AdaptiveLogSoftmaxWithLoss, (4, 5, [2])),
        (nn.LSTMCell, (2, 3)), (nn.LSTM, (2, 3)), (nn.ZeroPad2d, (1,)), (nn.Linear, (2, 3)),
    ],
)  # fmt: skip
def test_a_base_beside_the_layer_is_initialised(kind, options):
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

    module = type("Layer", (kind, Counted), {})(*options)
    assert module.calls == 0
