"""What a model consists of: layers, shapes, parameters and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from inspect import iscoroutinefunction
from typing import Any

from asyncgrad.autograd.modes import no_grad
from asyncgrad.autograd.svg import escaped
from asyncgrad.core.variable import Variable
from asyncgrad.errors import class_of
from asyncgrad.nn.module import Module
from asyncgrad.nn.module_tree import Members
from asyncgrad.nn.parameter import is_lazy
from asyncgrad.records import NamedTuple

_TITLES = ("layer", "output", "parameters", "bytes")


class Layer(NamedTuple):
    """A module of a model: one line of its summary."""

    #: Its name in the model: `encoder.0`; the model's own is "".
    name: str
    #: Its class.
    kind: str
    #: How deep it is in the model.
    depth: int
    #: The shape of what it returned last: of a tensor, or of each in a tuple; None if it returned
    #: something else or was not called.
    output: tuple[Any, ...] | None
    #: The number of elements of its own parameters, without those of its parts and those that an
    #: earlier layer has, too.
    parameters: int
    #: How many of these require grad.
    trainable: int
    #: The bytes of its own parameters and buffers.
    nbytes: int


class Summary(NamedTuple):
    """A model's layers; printed, or shown by a notebook, it is a table."""

    layers: tuple[Layer, ...]

    @property
    def parameters(self) -> int:
        """The number of elements of all parameters; shared ones count once."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def trainable(self) -> int:
        """How many of these require grad."""
        return sum(layer.trainable for layer in self.layers)

    @property
    def nbytes(self) -> int:
        """The bytes of all parameters and buffers."""
        return sum(layer.nbytes for layer in self.layers)

    def _rows(self) -> Iterator[tuple[str, str, str, str]]:
        for layer in self.layers:
            own = layer.name.rpartition(".")[2]
            name = "  " * layer.depth + (f"{own}: {layer.kind}" if own else layer.kind)
            shape = "" if layer.output is None else str(layer.output)
            yield name, shape, f"{layer.parameters:,}", f"{layer.nbytes:,}"
        yield "in all", "", f"{self.parameters:,}", f"{self.nbytes:,}"

    def __repr__(self) -> str:
        """A table; the last line counts everything."""
        rows = [_TITLES, *self._rows()]
        name, shape, *numbers = (max(map(len, column)) for column in zip(*rows, strict=True))
        lines = [
            f"{row[0]:<{name}}  {row[1]:<{shape}}  {row[2]:>{numbers[0]}}  {row[3]:>{numbers[1]}}"
            for row in rows
        ]
        fixed = self.parameters - self.trainable
        return "\n".join([*lines, f"{fixed:,} parameters do not require grad"] if fixed else lines)

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        head = "".join(f"<th>{title}</th>" for title in _TITLES)
        body = "".join(
            "<tr>" + "".join(f"<td>{_spaced(cell)}</td>" for cell in row) + "</tr>"
            for row in self._rows()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _spaced(cell: str) -> str:
    """HTML that keeps the spaces before a text."""
    text = cell.lstrip()
    return "&nbsp;" * (len(cell) - len(text)) + escaped(text)


def summary(model: Module, *args: Any, **kwargs: Any) -> Summary:
    """A table, with sums, of a model's layers and the shapes of what they return for an example.

    Args:
        args: an example of what the model is called with; without any, shapes are left out. It is
            called once, in evaluation mode and without recording a graph.
        kwargs: the same, by name.

    Raises:
        TypeError: if it is no module, or if the `forward` of one is a coroutine function, which
            can't be awaited here.
        ValueError: if parameters of lazy modules have no shape yet; call the model first.

    Example:
        >>> model = ag.nn.Sequential(ag.nn.Linear(4, 8), ag.nn.ReLU(), ag.nn.Linear(8, 2))
        >>> print(ag.nn.summary(model, ag.zeros(3, 4)))
        layer        output  parameters  bytes
        Sequential   (3, 2)           0      0
          0: Linear  (3, 8)          40    160
          1: ReLU    (3, 8)           0      0
          2: Linear  (3, 2)          18     72
        in all                       58    232
    """
    if not isinstance(model, Members):
        raise TypeError(f"summary: {class_of(model)} is not a Module")
    shapes = _shapes(model, args, kwargs) if args or kwargs else {}
    counted: set[int] = set()
    layers = []
    for name, module in model.named_modules():
        parameters = trainable = nbytes = 0
        own = list(module.parameters(recurse=False))
        for place, tensor in enumerate([*own, *module.buffers(recurse=False)]):
            if id(tensor) in counted:
                continue
            counted.add(id(tensor))
            if is_lazy(tensor):
                raise ValueError(
                    f"summary: a parameter of {name or 'the model'} has no shape yet. Call the "
                    "model once, and then this."
                )
            nbytes += tensor.nbytes
            if place < len(own):
                parameters += tensor.numel()
                trainable += tensor.numel() if tensor.requires_grad else 0
        depth = name.count(".") + 1 if name else 0
        kind, output = type(module).__name__, shapes.get(module)
        layers.append(Layer(name, kind, depth, output, parameters, trainable, nbytes))
    return Summary(tuple(layers))


def _shapes(model: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[Module, Any]:
    """The shapes of what the modules of a model return for an example."""
    shapes: dict[Module, Any] = {}

    def note(module: Module, _: Any, output: Any) -> None:
        shapes[module] = _shape(output)

    with ExitStack() as stack:
        for module in model.modules():
            if iscoroutinefunction(module.forward):
                raise TypeError(
                    f"summary: {type(module).__name__}.forward is a coroutine function, which "
                    "can't be awaited here. Leave the example out, or give a part of the model."
                )
            stack.callback(setattr, module, "training", module.training)
            stack.callback(module.register_forward_hook(note).remove)
        stack.enter_context(no_grad())
        model.eval()(*args, **kwargs)
    return shapes


def _shape(output: Any) -> tuple[Any, ...] | None:
    if isinstance(output, Variable):
        return tuple(output._metadata.shape)
    if isinstance(output, (tuple, list)):
        return tuple([_shape(part) for part in output])
    return None
