"""How every op is called: a function that computes the result and records a node.

The text of that function is generated from the op's row when it is first called; `source` shows it.
An op has up to five forms:

    tensors    takes tensors of the right dtypes, in any mode; what `RECORDED` holds of most ops
    operands   elementwise: inlines the common case, which is floating tensors alike in shape, dtype
               and device, or a tensor and a number, in no mode; promotes other operands
    operator   the same for Python's operators: returns `NotImplemented` for foreign types
    reflected  the operator with exchanged operands
    checked    of matrices that are known to fit; any others are checked first

All forms look the array function up by the op's name in `Metadata.kernels` and call it there. Where
a mode is in force, `mode_hooks.instead` may compute the result in another way, and `in_modes` sees
every result. If that mode is only a recorder's, the forms of the common case are called without it,
and `computed_and_reported` tells it of the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, compress
from types import CodeType
from typing import Any

from asyncgrad.core import variable
from asyncgrad.core.history import note_view
from asyncgrad.core.modes import current
from asyncgrad.core.node import EDGE_COST, OpNode, max_topological_nr, next_sequence_nr
from asyncgrad.core.rule import Rule
from asyncgrad.core.variable import counter_of, gradient_edge
from asyncgrad.core.versions import VersionCounter
from asyncgrad.devices.fp_errors import call_without_fp_errors
from asyncgrad.ops.device_check import error_of
from asyncgrad.ops.generated import code_of, lazy_function
from asyncgrad.ops.mode_hooks import computed_and_reported, in_modes, instead
from asyncgrad.ops.namespace import OPS, RECORDED, metadata_of
from asyncgrad.ops.op import Op
from asyncgrad.ops.promotion import (
    as_tensor_operand,
    check_broadcast,
    promote_binary,
    promote_unary,
)
from asyncgrad.ops.save_plan import plan_of
from asyncgrad.ops.template import Writer, arguments_of, is_pair, is_sequence

#: How many records a dispatch function caches.
_CACHE_LIMIT = 1024


def source(name: str) -> str:
    """The text of an op's dispatch functions, in all forms that they have."""
    op = OPS[name]
    forms = ["tensors"]
    if _takes_operands(op):
        forms += ["operands"] if len(op.inputs) == 1 else ["operands", "operator", "reflected"]
    return "\n".join(f"# {form}\n{_text_of(op, form)}" for form in forms)


def dispatch_of(op: Op) -> Callable[..., Any]:
    """The dispatch function of an op: of operands if it is elementwise, else of tensors."""
    return _made(op, "operands" if _takes_operands(op) else "tensors")


def tensors_dispatch(op: Op) -> Callable[..., Any]:
    """The dispatch function of tensors of the right dtypes."""
    return _made(op, "tensors")


def operator_dispatch(op: Op, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The dispatch function of a Python operator, such as `__add__` or `__radd__`."""
    made = _made(op, "reflected" if reflected else "operator")
    made.__annotations__ = {"other": "Tensor | Number", "return": "Tensor"}
    return made


def product_dispatch(op: Op, checked: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The dispatch function of a product of two matrices; `checked` takes any operands.

    A pair of matrix metadata that was multiplied before needs no checks: a cache holds the result's
    metadata.
    """
    made = _made(op, "checked", checked=checked)
    made.__name__ = made.__qualname__ = "matmul"
    made.__doc__ = checked.__doc__
    made.__annotations__ = checked.__annotations__
    return made


def promoting(op: Op, *, operator: bool = False) -> Callable[[Any, Any], Any]:
    """The function that promotes two operands as the row says."""
    right, left = _of_numbers(op)
    return promote_binary(op, tensors_dispatch(op), right=right, left=left, operator=operator)


def _of_numbers(op: Op) -> tuple[Any, Any]:
    """The functions of a tensor and a number that follows or precedes it; None if there is none."""
    right = getattr(RECORDED, f"{op.name}_scalar", None)
    return right, right if op.commutes else getattr(RECORDED, f"r{op.name}_scalar", None)


def _takes_operands(op: Op) -> bool:
    """Whether an op is elementwise, so that it takes operands of any dtype."""
    if op.view or callable(op.cost) or is_sequence(op):
        return False
    if len(op.inputs) == 1:
        return op.attributes in {(), ("scalar",)}
    return is_pair(op) and not op.changes_dtype


# -- what generated functions call ----------------------------------------------------------------


def _planned(op: Op, key: tuple[bool, ...]) -> tuple[Rule, Callable[..., None]]:
    """How to record an op; `key` says which inputs require grad, then which were broadcast."""
    places = [place for place, name in enumerate(op.inputs) if name in op.pulls]
    wanted, broadcast = key[: len(places)], key[len(places) :]
    plan = plan_of(op, tuple(compress(places, wanted)), tuple(compress(places, broadcast)))
    return plan.rule, plan.save


def _remember_comparison(cache: dict[Any, Any], op: Op, known: Any, array: Any, kernel: Any) -> Any:
    """Remember, and return, a comparison's metadata, its kernel, and the library's own function."""
    if len(cache) >= _CACHE_LIMIT:
        cache.clear()
    own = getattr(op.forward, "name", None)
    fast = kernel if own is None or known.device.streamed else getattr(known.F.xp, own)
    seen = cache[known] = (metadata_of(array, known.device), kernel, fast)
    return seen


def _remember_product(cache: dict[Any, Any], op: Op, input: Any, other: Any, out: Any) -> Any:
    """Remember the metadata and cost of a product that `checked` has computed; returns `out`."""
    one, second = input._metadata, other._metadata
    if len(one.shape) == 2 and len(second.shape) == 2:
        if len(cache) >= _CACHE_LIMIT:
            cache.clear()
        cache[one, second] = (out._metadata, op.cost(input, other))  # type: ignore[operator]
    return out


def _sequence_node(
    op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...], metadata: Any
) -> OpNode | None:
    """The node of an op on a sequence of tensors; None if no gradient can flow."""
    edges = tuple(map(gradient_edge, inputs))
    wanted = tuple([place for place, edge in enumerate(edges) if edge is not None])
    if not wanted:
        return None
    node = OpNode()
    node.rule = rule = _sequence_rule(op, wanted, len(inputs))
    node.following = edges[wanted[0]] if len(wanted) == 1 else tuple([edges[p] for p in wanted])
    (node.saved,) = attributes
    if rule.names[0] == "ends":
        lengths = [x._metadata.shape[attributes[0]] for x in inputs]
        node.saved = (tuple(accumulate(lengths)), *attributes)
    node.guard = None
    node.extras = None
    node.output_metadata = metadata
    node.cost = metadata.cost + EDGE_COST * len(wanted)
    node.sequence_nr = next_sequence_nr()
    node.topological_nr = 1 + max_topological_nr(node.following)
    return node


@lru_cache(_CACHE_LIMIT)
def _sequence_rule(op: Op, wanted: tuple[int, ...], arity: int) -> Rule:
    """The rule of an op on a sequence of tensors, of which some require grad.

    Its pull is called for one tensor at a time, with the tensor's place. A pull with a parameter
    `ends` also gets where each tensor ends along the axis, which is the op's first attribute.
    """
    ((_, (needs, pull, *_)),) = op.pulls.items()
    ended = "ends" in needs

    def one(place: int) -> Callable[[Any, Any, Any], Any]:
        if ended:
            return lambda F, g, saved: pull(F, g, place, *saved)
        return lambda F, g, saved: pull(F, g, place, saved)

    pulls = tuple([one(place) for place in wanted])
    return Rule(
        op.node_name,
        pulls[0]
        if len(wanted) == 1
        else lambda F, g, saved: tuple([p(F, g, saved) for p in pulls]),
        pulls=pulls if len(wanted) > 1 else None,
        fresh=op.fresh,
        places=wanted,
        arity=arity,
        names=("ends", *op.attributes) if ended else op.attributes,
    )


#: What the names in generated functions stand for; `_names_in` adds those that differ.
_NAMES: dict[str, Any] = {
    "call_without_fp_errors": call_without_fp_errors,
    "current": current,
    "next_sequence_nr": next_sequence_nr,
    **{one.__name__: one for one in (
        OpNode, VersionCounter, as_tensor_operand, check_broadcast, computed_and_reported,
        counter_of, error_of, gradient_edge, in_modes, instead, metadata_of, note_view,
        promote_unary, _planned, _remember_comparison, _remember_product, _sequence_node,
    )},
}  # fmt: skip


# -- the functions --------------------------------------------------------------------------------


def _made(op: Op, form: str, **values: Any) -> Callable[..., Any]:
    names: dict[str, Any] = {"__name__": __name__, "op": op, **values}

    def code(made: Any) -> CodeType:
        text = _text_of(op, form)
        names.update(_names_in(text, op, form, made))
        return code_of(text, f"dispatch of {op.name}: {form}")

    name = f"__r{op.name}__" if form == "reflected" else op.name
    made = lazy_function(name, arguments_of(op, form), "<asyncgrad dispatch>", names, code)
    # Attributes that come last may have defaults in the raw function.
    made.__defaults__ = getattr(op.forward, "__defaults__", None) if op.attributes else None
    return made  # type: ignore[no-any-return]


def _text_of(op: Op, form: str) -> str:
    right, left = _of_numbers(op)
    return Writer(op, form, right=right is not None, left=left is not None).text()


def _names_in(text: str, op: Op, form: str, function: Any) -> dict[str, Any]:
    names = {**_NAMES, "function": function, "cost_of": op.cost}
    names |= {"Tensor": variable.new_tensor, "cache": {}, "plans": {}}
    if form != "tensors":
        names["tensors"] = tensors_dispatch(op)
        if is_pair(op):
            names["right"], names["left"] = _of_numbers(op)
            names["promoted"] = promoting(op, operator=form != "operands")
    for places in re.findall(r"\brule_(\d+)", text):
        names[f"rule_{places}"] = plan_of(op, tuple(map(int, places)), ()).rule
    return names
