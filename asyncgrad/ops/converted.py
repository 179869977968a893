"""Public functions, which convert their arguments to the kinds that their annotations name.

`k: int` takes what PyTorch takes for an int, and the function gets an int. `_CHECKS` says what is
done for which annotation; all other arguments are passed on as they are. The function that users
call is made from a text with these checks, which is compiled at the first call. It also knows
NumPy's names of arguments, writes into `out` or over the input where a function takes that, and
names the node of a composed function.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from inspect import Parameter
from types import FunctionType, ModuleType
from typing import Any, TypeVar, cast

from asyncgrad.choices import words_by_name
from asyncgrad.core.variable import Variable
from asyncgrad.ops.arguments import (
    check_bool,
    chosen_reduction,
    matrices,
    number_argument,
    of_one_dtype,
    one_dim,
    one_int,
)
from asyncgrad.ops.batching import by_parts
from asyncgrad.ops.dtype import FLOATING, INEXACT, REAL
from asyncgrad.ops.dtype_device import as_dtype
from asyncgrad.ops.generated import code_of
from asyncgrad.ops.node_names import renamed
from asyncgrad.ops.promotion import as_tensor_operand, operand_of, refusal
from asyncgrad.ops.requirements import checks
from asyncgrad.ops.signatures import Postponed, extended
from asyncgrad.ops.tensors.in_place import change
from asyncgrad.ops.tensors.out import put

_F = TypeVar("_F", bound="Callable[..., Any]")
_NO_NUMBER = "{x}.__class__ is not float and {x}.__class__ is not int"
_NO_TENSOR = "not isinstance({x}, Variable)"
#: Annotations of words, and what is raised for other words. What is no word is a TypeError, but the
#: same error for options that PyTorch reads in Python.
_WORDS = {
    "BagMode": ValueError, "DistanceMode": ValueError, "FourierNorm": RuntimeError,
    "GeluFormula": RuntimeError, "IndexReduceKind": RuntimeError, "Indexing": RuntimeError,
    "Interpolation": RuntimeError, "LstsqDriver": RuntimeError, "PadMode": NotImplementedError,
    "QrMode": RuntimeError, "ResizeMode": NotImplementedError, "SampleMode": ValueError,
    "SamplePadding": ValueError, "ScatterKind": RuntimeError, "ScatterReduceKind": RuntimeError,
    "Side": RuntimeError, "Triangle": RuntimeError,
}  # fmt: skip
_READ_IN_PYTHON = frozenset({"BagMode", "ResizeMode", "SampleMode", "SamplePadding"})
#: Conditions on tensors, by annotation.
_CONDITIONS = {
    "Vector": "{x}.ndim == 1  # {x} must be a one-dimensional tensor",
    "Matrix": "{x}.ndim == 2  # expected a matrix",
    **{
        f"AtLeast{n}D": f"{{x}}.ndim >= {n}  # input tensor must have at least {n} dimension(s)"
        for n in (1, 2, 3)
    },
    "Mask": "{x}.dtype == bool  # only supports boolean masks. Compare it with something",
}
#: By annotation, when an argument `{x}` is not passed on as it is, and what is done then.
_CHECKS = {
    **dict.fromkeys(
        ("Tensor", *_CONDITIONS), (_NO_TENSOR, "raise refusal({x}, '{title}', {place})")
    ),
    "Alike": (
        f"{_NO_TENSOR} or {{x}}._metadata.dtype is not {{first}}._metadata.dtype",
        "of_one_dtype('{title}', {first}, {x}, place={place} - 1)",
    ),
    # Only for what is batched by `vmap`; what is no tensor is found when an example is computed.
    **dict.fromkeys(
        ("ByExample | Number", "ByExample | Sequence[int]", "ByExample | float"),
        ("getattr({x}, '_batched', False)", "return by_parts(made, {passed})"),
    ),
    "ByExample": (
        f"{_NO_TENSOR} or {{x}}._batched",
        "as_tensor_operand({x}, '{title}', {place})\n        return by_parts(made, {passed})",
    ),
    "bool": ("{x} is not True and {x} is not False", "check_bool('{title}', '{x}', {x})"),
    "DTypeLike": ("True", "{x} = as_dtype('{title}', {x})"),
    "int": (
        f"{{x}}.__class__ is not int or not {-(2**63)} <= {{x}} < {2**63}",
        "{x} = one_int('{title}', '{x}', {x})",
    ),
    "float": (_NO_NUMBER, "{x} = real_argument('{title}', '{x}', {x})"),
    "Number": (_NO_NUMBER, "{x} = number_argument('{title}', '{x}', {x})"),
    "Axis": (
        "{x}.__class__ is not int or not 0 <= {x} < len({first}._metadata.shape)",
        "{x} = one_dim('{title}', {x}, len({first}._metadata.shape))",
    ),
    "Reduction": ("", "{x} = chosen_reduction({x}{deprecated})"),
    "Matrices": ("", "matrices('{title}', {x}, False, {place})"),
    "SquareMatrices": ("", "matrices('{title}', {x}, True, {place})"),
    **{
        kind: (
            f"not isinstance({{x}}, Variable) or {{x}}._metadata.dtype.kind not in '{kinds}'",
            f"operand_of('{kinds}', {{x}}, '{{title}}', {{place}})",
        )
        for kind, kinds in (("Floating", FLOATING), ("Inexact", INEXACT), ("Real", REAL))
    },
    **{
        kind: (
            f"not isinstance({{x}}, str) or {{x}} not in words_of['{kind}']",
            f"raise wrong_word('{{title}}', '{{x}}', {{x}}, '{kind}')",
        )
        for kind in _WORDS
    },
    **dict.fromkeys(
        ("str", "Rounding"), ("not isinstance({x}, str)", "raise no_word('{title}', '{x}', {x})")
    ),
}  # fmt: skip
#: What users see of kinds that are no types.
_PUBLIC = {
    "Axis": "int", "InPlace": "bool", "Truth": "bool",
    **dict.fromkeys((
        *_CONDITIONS, "Alike", "ByExample", "Floating", "Inexact", "Matrices", "Real",
        "SquareMatrices",
    ), "Tensor"),
}  # fmt: skip
_OTHER_NAME = """
    if {other} is not MISSING:
        if {x} is not default_{x}:
            raise TypeError("{title}(): {other}= is another name of {x}=; pass one of them")
        {x} = {other}
"""
_NEEDED = """
    if {x} is MISSING:
        raise TypeError("{title}() missing 1 required positional argument: '{x}'")
"""
_CALL = """
    return {call}
"""
_OVER_INPUT = """
    if {x}:
        return change({first}, "{name}_", {whole}, {others})
"""
_WITH_OUT = """
    if out is None:
        return {call}
    {chosen}
    return put(out, "{title}", {call}, exact={exact})
"""
#: What is done before the result is put into `out`, and whether that needs the result's dtype.
_OUT = {
    "cast": ("", "False"),
    "cast or chosen": ("", "dtype is not None"),
    "exact": ("", "True"),
    "accumulated": (
        "chosen = dtype is not None\n    dtype = dtype if chosen else dtype_of(out)", "chosen"
    ),
}  # fmt: skip
_STARS: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
#: NumPy's names of arguments, and the name that PyTorch takes for the A of its documentation.
_OTHERS = {"axis": "dim", "keepdims": "keepdim", "input": "A"}
#: The value of an argument that is not given.
_MISSING = object()


def _real_argument(name: str, argument: str, value: Any) -> Any:
    """A number argument that must not be complex; of booleans, 0 or 1."""
    number = number_argument(name, argument, value)
    if isinstance(number, complex):
        raise TypeError(f"{name}(): argument '{argument}' must be float, not complex")
    return float(number) if isinstance(number, bool) else number


def _dtype_of(out: Any) -> Any:
    return out._metadata.dtype if isinstance(out, Variable) else None


def _whole(function: Callable[..., Any], node: str, *arguments: Any) -> Any:
    return renamed(function(*arguments), node)


def _no_word(name: str, argument: str, value: Any) -> TypeError:
    return TypeError(f"{name}(): argument '{argument}' must be str, not {type(value).__name__}")


def _wrong_word(name: str, argument: str, value: Any, kind: str) -> Exception:
    """The error for an option that is none of its words."""
    if not isinstance(value, str) and kind not in _READ_IN_PYTHON:
        return _no_word(name, argument, value)
    return _WORDS[kind](
        f"{name}(): argument '{argument}' must be one of {_words_of[kind]}, but got {value!r}"
    )


_words_of = {kind: words_by_name(kind) for kind in _WORDS}


#: What the texts call, by name.
_NAMES = {
    "MISSING": _MISSING,
    "words_of": _words_of,
    **{one.__name__.lstrip("_"): one for one in (
        Variable, _dtype_of, _no_word, _real_argument, _whole, _wrong_word, as_dtype,
        as_tensor_operand, by_parts, change, check_bool, chosen_reduction, matrices,
        number_argument, of_one_dtype, one_dim, one_int, operand_of, partial, put, refusal, renamed,
    )},
}  # fmt: skip
_STUB = code_of(
    "def stub(*args, **kwargs):\n    return finished()(*args, **kwargs)\n",
    "arguments before the first call",
)


def converted(
    function: _F, *, out: str = "", node: str = "", others: Mapping[str, str] = _OTHERS
) -> _F:
    """Make the function that users call of one that gets converted arguments.

    Errors name it with what its module says in `SPACE` before it.

    Args:
        out: how a result is put into `out`, if that is taken: "exact" needs a tensor of its dtype,
            "cast" converts it, and "accumulated" means that the function computes in the dtype of
            `out` unless the caller chooses one.
        node: PyTorch's name of the one node of a composed function; its last node gets that name.
        others: other names of arguments.
    """
    name = function.__name__
    kinds = dict(function.__annotations__)
    # In place, because what a decorator has wrapped shares them.
    function.__annotations__.update((x, _public(kind)) for x, kind in kinds.items())
    names = {**_NAMES, "function": function, "__name__": function.__module__}

    def finished() -> Any:
        title = inspect.unwrap(function).__globals__.get("SPACE", "") + name
        text, made.__defaults__, made.__kwdefaults__ = _written(
            function, kinds, title, out, node, others, names
        )
        made.__code__ = code_of(text, f"arguments of {title}")
        return made

    made: Any = FunctionType(_STUB.replace(co_name=name, co_qualname=name), names, name)
    for key in ("__annotations__", "__doc__", "__module__", "__qualname__"):
        setattr(made, key, getattr(function, key))
    names |= {"finished": finished, "made": made}
    made.__wrapped__ = function
    made.__signature__ = Postponed(extended, function, {"out": None} if out else {})
    return cast("_F", made)


@cache
def _public(annotation: str) -> str:
    """An annotation as users see it."""
    return re.sub(r"\w+", lambda found: _PUBLIC.get(found[0], found[0]), annotation)


#: For functions that have an argument `out`, too.
writes = partial(converted, out="cast")
writes_exactly = partial(converted, out="exact")
accumulates = partial(converted, out="accumulated")


def one_node(name: str, convert: Callable[..., Any] = converted) -> Callable[[_F], _F]:
    """Decorate a composed function that is one node in PyTorch, of that name."""
    return partial(convert, node=name)


def convert_arguments(chapters: Sequence[ModuleType]) -> None:
    """Have the functions of modules convert their arguments, unless a decorator has done so.

    Functions that take any number of arguments do it themselves, and fast ones, which also write
    into `out` themselves. A function whose first argument is the `name` of another helps that one.
    """
    made: dict[Any, Any] = {}
    for chapter in chapters:
        for name, one in vars(chapter).items():
            own = isinstance(one, FunctionType) and one.__module__ == chapter.__name__
            if not own or name[0] == "_" or "__signature__" in vars(one) or one in made:
                continue
            code = inspect.unwrap(one).__code__
            given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if given[:1] != ("name",) and "out" not in given and not code.co_flags & _ANY_NUMBER:
                made[one] = converted(one)
    for chapter in chapters:
        functions = [(n, one) for n, one in vars(chapter).items() if isinstance(one, FunctionType)]
        vars(chapter).update((n, made[one]) for n, one in functions if one in made)


_ANY_NUMBER = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def _written(
    function: Any, kinds: Mapping[str, str], title: str, out: str, node: str,
    others: Mapping[str, str], names: dict[str, Any],
) -> tuple[str, tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    """The text of the function that users call, its defaults, and those of arguments by name."""
    parameters = inspect.signature(function).parameters
    others = {n: x for n, x in others.items() if x in parameters and n not in parameters}
    given = [_OTHER_NAME.format(other=n, x=x, title=title) for n, x in others.items()]
    lines: list[str] = []
    heads: list[str] = []
    passed = [
        f"{x}={x}" if one.kind is Parameter.KEYWORD_ONLY else _STARS.get(one.kind, "") + x
        for x, one in parameters.items()
    ]
    defaults: list[Any] = []
    by_name: dict[str, Any] = {}
    plain, types = inspect.unwrap(function), {x: _public(str(kind)) for x, kind in kinds.items()}
    for place, (x, one) in enumerate(parameters.items(), 1):
        default = names[f"default_{x}"] = one.default
        star = _STARS.get(one.kind, "")
        if star:
            heads.append(star + x)
            continue
        if default is Parameter.empty and (defaults or x in others.values()):
            # The argument may be given by another name, or follows one that may.
            default = names[f"default_{x}"] = _MISSING
            given.append(_NEEDED.format(x=x, title=title))
        if one.kind is Parameter.KEYWORD_ONLY:
            by_name[x] = default
        else:
            heads.append(x)
            defaults += [] if default is Parameter.empty else [default]
        kind = str(kinds.get(x))
        lines.append(_check(x, kind, parameters, title, place, ", ".join(passed)))
        if text := _CONDITIONS.get(kind.removesuffix(" | None")):
            lines.append(checks([(text.format(x=x), RuntimeError)], plain, types, title, names))
    lines.append(checks(getattr(plain, "requirements", []), plain, types, title, names))
    by_name |= dict.fromkeys(others, _MISSING) | ({"out": None} if out else {})
    if by_name:
        at = len(heads) - any(head.startswith("**") for head in heads)
        lead = [] if any(head[:1] == "*" for head in heads[:at]) else ["*"]
        heads[at:at] = [*lead, *by_name]
    end, call = _CALL, "renamed(function({passed}), {node!r})" if node else "function({passed})"
    unchanged = " and ".join([f"{x} is default_{x}" for x in by_name if x in parameters])
    if unchanged and any(head[:1] == "*" and head[1:] for head in heads) and not out:
        # Without arguments by name the call is faster.
        plain = call.format(passed=", ".join([one for one in passed if "=" not in one]), node=node)
        end = f"    if {unchanged}:\n        return {plain}\n" + _CALL
    if out:
        chooses = out == "cast" and "dtype" in parameters
        chosen, exact = _OUT["cast or chosen" if chooses else out]
        end = _WITH_OUT.replace("{chosen}", chosen).replace("{exact}", exact)
    call = call.format(passed=", ".join(passed), node=node)
    in_place = next((x for x, kind in kinds.items() if kind == "InPlace"), "")
    if in_place:
        rest = ["False" if x == in_place else x for x in passed[1:]]
        whole = f"partial(whole, function, {node!r})" if node else "function"
        lines.append(_OVER_INPUT.format(
            x=in_place, first=passed[0], name=function.__name__, whole=whole,
            others=", ".join(rest),
        ))  # fmt: skip
    lines.append(end.format(call=call, title=title))
    body = "".join(line.lstrip("\n") for line in (*given, *lines))
    by_name = {x: d for x, d in by_name.items() if d is not Parameter.empty}
    return f"def {function.__name__}({', '.join(heads)}):\n{body}", tuple(defaults), by_name


def _check(
    x: str, annotation: str, parameters: Mapping[str, Parameter], title: str, place: int,
    passed: str,
) -> str:  # fmt: skip
    """What is done with an argument before it is passed on."""
    kind = annotation.removesuffix(" | None")
    if kind not in _CHECKS:
        return ""
    when, then = _CHECKS[kind]
    if kind != annotation:
        when = f"{{x}} is not None and ({when})"
    check = f"    if {when}:\n        {then}\n" if when else f"    {then}\n"
    deprecated = ", size_average, reduce" if "reduce" in parameters else ""
    return check.format(
        x=x, title=title, place=place, first=next(iter(parameters)), deprecated=deprecated,
        passed=passed,
    )  # fmt: skip
