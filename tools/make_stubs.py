"""Write the stubs: what type checkers and editors know of names that are made at run time.

    python tools/make_stubs.py            writes the files
    python tools/make_stubs.py --check    says whether they are up to date

Most functions and methods are made from rows of the table, or take arguments that decorators add.
Their signatures and docstrings are read from the running package, types of results that depend on
arguments from `OVERLOADS`.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import sys
import textwrap
import types
import typing
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import asyncgrad
from asyncgrad.scheduler.engine import FOR_USERS, Engine

PACKAGE = Path(asyncgrad.__file__).parent
HEAD = '"""{}"""\n\n# Written by tools/make_stubs.py from the running package.\n'
#: The modules whose stub is written: they only gather names of other modules.
MODULES = ("asyncgrad", "asyncgrad.fft", "asyncgrad.linalg", "asyncgrad.nn",
           "asyncgrad.nn.functional", "asyncgrad.special")  # fmt: skip
#: The module of the stub class that holds the methods that `Tensor` gets at run time.
METHODS = "asyncgrad._methods"

_FALSE, _TRUE = "=Literal[False]", "Literal[True]"
_PICKED = [{"dim": None, "keepdim": None, "->": "Tensor"}, {"dim": "int", "->": "return_types.{}"}]
_UNIQUE = [
    {"return_inverse": _FALSE, "return_counts": _FALSE, "->": "Tensor"},
    {"return_inverse": _TRUE, "return_counts": _FALSE, "->": "tuple[Tensor, Tensor]"},
    {"return_inverse": _FALSE, "return_counts": _TRUE, "->": "tuple[Tensor, Tensor]"},
    {"return_inverse": _TRUE, "return_counts": _TRUE, "->": "tuple[Tensor, Tensor, Tensor]"},
    {"->": "Tensor | tuple[Tensor, ...]"},
]
_INDEXED = [
    {"return_indices": _FALSE, "->": "Tensor"},
    {"return_indices": _TRUE, "->": "tuple[Tensor, Tensor]"},
    {"->": "Tensor | tuple[Tensor, Tensor]"},
]
_AT_LEAST = [
    {"tensors": "/Tensor", "->": "Tensor"},
    {"tensors": "/Sequence[Tensor]", "->": "tuple[Tensor, ...]"},
    {"->": "tuple[Tensor, ...]"},
]
_EXTREME = [
    {"dim": None, "keepdim": None, "other": None, "->": "Tensor"},
    {"dim": "int", "other": None, "->": "return_types.{}"},
    {"dim": "Tensor", "keepdim": None, "other": None, "->": "Tensor"},
    {"dim": None, "keepdim": None, "other": "Tensor", "->": "Tensor"},
]
#: The overloads of functions: for each one, how parameters differ from those of the signature. None
#: leaves a parameter out, a type makes it required, `=` before the type keeps its default, and `/`
#: makes it positional.
OVERLOADS: dict[str, list[dict[str, str | None]]] = {
    "adaptive_max_pool1d": _INDEXED,
    "adaptive_max_pool2d": _INDEXED,
    "adaptive_max_pool3d": _INDEXED,
    "atleast_1d": _AT_LEAST,
    "atleast_2d": _AT_LEAST,
    "atleast_3d": _AT_LEAST,
    "cummax": [{"->": "return_types.{}"}],
    "cummin": [{"->": "return_types.{}"}],
    "fractional_max_pool2d": _INDEXED,
    "fractional_max_pool3d": _INDEXED,
    "max": _EXTREME,
    "max_pool1d": _INDEXED,
    "max_pool2d": _INDEXED,
    "max_pool3d": _INDEXED,
    "median": _PICKED,
    "min": _EXTREME,
    "nanmedian": _PICKED,
    "nonzero": [
        {"as_tuple": _FALSE, "->": "Tensor"},
        {"as_tuple": _TRUE, "->": "tuple[Tensor, ...]"},
        {"->": "Tensor | tuple[Tensor, ...]"},
    ],
    "type": [
        {"dtype": None, "non_blocking": None, "->": "str"},
        {"dtype": "DTypeLike", "->": "Tensor"},
    ],
    "unique": _UNIQUE,
    "unique_consecutive": _UNIQUE,
}  # fmt: skip
#: The modules of names that annotations use and that their own module does not import.
KNOWN = {
    "Device": ("asyncgrad.devices", "Device"),
    "Dims": ("asyncgrad.types", "Dims"),
    "DTypeLike": ("asyncgrad.types", "DTypeLike"),
    "Ints": ("asyncgrad.types", "Ints"),
    "Literal": ("typing", "Literal"),
    "Number": ("asyncgrad.types", "Number"),
    "Sequence": ("collections.abc", "Sequence"),
    "Tensor": ("asyncgrad.tensor", "Tensor"),
    "layout": ("asyncgrad.ops.dtype_device", "layout"),
    "return_types": ("asyncgrad.ops", "return_types"),
}
_LITERALS = (bool, int, float, complex, str, bytes, types.NoneType)


@functools.cache
def _source(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


@functools.cache
def _names(module: str) -> dict[str, tuple[str, str]]:
    """The module and name that each name in a module, also one for types, comes from."""
    found = {}
    for node in ast.walk(_source(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found[alias.asname or alias.name] = (node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name] = (alias.name, "")
    for node in _source(module).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = (module, node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    found[target.id] = (module, target.id)
    return found


class Stub:
    """One file."""

    def __init__(self, doc: str, taken: dict[str, Any], *, exports: bool) -> None:
        self.doc = doc
        #: The names that the stub defines, which an import must not shadow, with their values.
        self.taken = taken
        #: Whether names are also imported for users, so that annotations may use them.
        self.exports = exports
        self.imports: set[str] = set()
        self.body: list[str] = []

    def text(self) -> str:
        """The text of the file."""
        names: dict[str, list[str]] = {}
        for line in sorted(self.imports):
            origin, _, name = line.partition(" import ")
            names.setdefault(origin, []).append(name)
        imports = [
            f"{origin} import {', '.join(own)}" if own != [""] else origin
            for origin, own in names.items()
        ]
        return "\n".join([HEAD.format(self.doc), *imports, "", *self.body]) + "\n"

    def offer(self, origin: str, known: str, name: str) -> list[str]:
        """Import a name of another module for users; returns no lines for the body."""
        self.imports.add(f"from {origin} import {known} as {name}")
        return []

    def type_of(self, annotation: Any, module: str, default: str = "Any") -> str:
        """An annotation, with its names imported."""
        if annotation is Parameter.empty:
            annotation = default
        elif not isinstance(annotation, str):
            annotation = getattr(annotation, "__qualname__", None) or str(annotation)
        tree = ast.parse(annotation, mode="eval")
        return ast.unparse(_Renamed(self, module).visit(tree))

    def name_for(self, name: str, module: str) -> str:
        """The name in this stub of what a module calls `name`; imports it if necessary."""
        known = _names(module).get(name) or KNOWN.get(name)
        origin, original = known or _names("asyncgrad.choices").get(name, (None, name))
        if (origin, original) == ("asyncgrad.types", "Tensor"):
            origin, original = KNOWN["Tensor"]
        if (origin, original) == ("asyncgrad.scheduler.engine", "Engine"):
            return self._engine()
        if origin is None and name == "Any":
            origin = "typing"
        if origin is None:
            if not hasattr(builtins, name):
                raise LookupError(f"{module}: what does {name} stand for?")
            if name not in self.taken:
                return name
            self.imports.add("import builtins")
            return f"builtins.{name}"
        if self.exports and name in self.taken:
            value = importlib.import_module(origin)
            if self.taken[name] is (getattr(value, original, None) if original else value):
                return name
        written = f"_{name}" if name in self.taken else name
        if not original:
            self.imports.add(f"import {origin} as {written}")
        else:
            what = original if written == original else f"{original} as {written}"
            self.imports.add(f"from {origin} import {what}")
        return written

    def _engine(self) -> str:
        """Write a class with the public methods of an engine, and return its name."""
        lines = []
        for name in FOR_USERS:
            member = getattr(Engine, name)
            function = getattr(member, "fget", member)
            lines += [] if function is member else ["@property"]
            lines += self.function(name, function, method=True)
        doc = f'"""{Engine.__doc__}"""'
        self.body += ["class _Engine:", *(f"    {line}".rstrip() for line in (doc, *lines))]
        return "_Engine"

    # -- functions --

    def function(self, name: str, function: Any, *, method: bool = False) -> list[str]:
        """The lines of a function: all its overloads, the first with the docstring."""
        bare = inspect.unwrap(function)
        module = bare.__module__
        signature = inspect.signature(function)
        forms = self._overloads(name, function, signature)
        lines = []
        for place, form in enumerate(forms):
            if len(forms) > 1:
                self.imports.add("from typing import overload")
                lines.append("@overload")
            arguments, result = self._written(form, module, method=method)
            if bare is not function and inspect.isgeneratorfunction(bare):
                # `contextlib.contextmanager` has wrapped it.
                self.imports.add("from contextlib import AbstractContextManager")
                result = result.replace("Iterator[", "AbstractContextManager[", 1)
            ignored = "  # type: ignore[override]" if name in {"__eq__", "__ne__"} else ""
            head, doc = f"def {name}({arguments}) -> {result}:", inspect.getdoc(function)
            if place or not doc:
                lines.append(f"{head} ...{ignored}")
                continue
            opened = f'r"""{doc}' if "\\" in doc else f'"""{doc}'
            closed = f'{opened}\n"""' if "\n" in doc else f'{opened}"""'
            lines += [head + ignored, *textwrap.indent(closed, "    ").split("\n")]
        return lines

    def _overloads(self, name: str, function: Any, signature: Signature) -> list[Signature]:
        written = typing.get_overloads(inspect.unwrap(function))
        if written:
            return [inspect.signature(one) for one in written]
        if name not in OVERLOADS or not _differs(signature):
            return [signature]
        return [_overload(name, signature, dict(changes)) for changes in OVERLOADS[name]]

    def _written(self, form: Signature, module: str, *, method: bool) -> tuple[str, str]:
        parts, kind = [], None
        for place, one in enumerate(form.parameters.values()):
            if kind is Parameter.POSITIONAL_ONLY and one.kind is not kind:
                parts.append("/")
            if one.kind is Parameter.KEYWORD_ONLY and kind not in {
                Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL,
            }:  # fmt: skip
                parts.append("*")
            kind = one.kind
            if method and not place:
                parts.append("self")
                continue
            stars = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}.get(kind, "")
            default = "Tensor" if one.name == "self" else "Any"
            text = f"{stars}{one.name}: {self.type_of(one.annotation, module, default)}"
            if one.default is not Parameter.empty:
                text += f" = {_default(one.default)}"
            parts.append(text)
        if kind is Parameter.POSITIONAL_ONLY:
            parts.append("/")
        return ", ".join(parts), self.type_of(form.return_annotation, module)


class _Renamed(ast.NodeTransformer):
    """Rewrites the names in an annotation to those that the stub has for them."""

    def __init__(self, stub: Stub, module: str) -> None:
        self._stub = stub
        self._module = module

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._stub.name_for(node.id, self._module))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and node.value.isidentifier():
            return self.visit_Name(ast.Name(node.value))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if ast.unparse(node.value) == "Literal":
            self.visit(node.value)
            return node
        return self.generic_visit(node)


def _differs(signature: Signature) -> bool:
    """Whether the result has several types, so that overloads can say which it is."""
    result = str(signature.return_annotation)
    return "|" in result or result == "Any"


def _overload(name: str, signature: Signature, changes: dict[str, str | None]) -> Signature:
    """The signature with some parameters changed, as `OVERLOADS` says."""
    result = (changes.pop("->") or "").format(name)
    parameters: list[Parameter] = []
    named = False  # whether a parameter with a default has been made required
    for one in signature.parameters.values():
        if one.name == "out":
            several = "|" not in result and result != "Tensor"
            kind = "Sequence[Tensor] | None" if several else "Tensor | None"
            one = one.replace(annotation=kind)
        if one.name in changes:
            wanted = changes[one.name]
            if wanted is None:
                named = True
                continue
            one = one.replace(annotation=wanted.lstrip("=/"))
            if wanted[0] == "/":
                one = one.replace(kind=Parameter.POSITIONAL_ONLY)
            elif wanted[0] != "=":
                earlier = [p for p in parameters if p.default is not Parameter.empty]
                named = named or bool(earlier)
                one = one.replace(default=Parameter.empty)
        if named and one.kind is Parameter.POSITIONAL_OR_KEYWORD:
            one = one.replace(kind=Parameter.KEYWORD_ONLY)
        parameters.append(one)
    return signature.replace(parameters=parameters, return_annotation=result)


def _default(value: Any) -> str:
    plain = isinstance(value, _LITERALS) and value == value and abs(_size(value)) != float("inf")
    if isinstance(value, tuple):
        plain = all(isinstance(one, _LITERALS) for one in value)
    return repr(value) if plain else "..."


def _size(value: Any) -> float:
    return value if isinstance(value, int | float) else 0


# -- the files ------------------------------------------------------------------------------------


def module_stub(name: str) -> str:
    """The stub of a module that holds names of other modules."""
    module = importlib.import_module(name)
    public = sorted({*module.__all__, *(n for n in dir(module) if name == "asyncgrad")})
    public = [one for one in public if one not in {"__version__", "__all__"}]
    taken = {one: getattr(module, one, None) for one in public}
    stub = Stub(module.__doc__ or "", taken, exports=True)
    listed = ", ".join(repr(one) for one in sorted(module.__all__))
    stub.body.append(f"__all__ = [{listed}]\n")
    if name == "asyncgrad":
        stub.body.append("__version__: str")
    for one in public:
        stub.body += _member(stub, name, one, getattr(module, one, None))
    return stub.text()


def _member(stub: Stub, module: str, name: str, value: Any) -> list[str]:
    if isinstance(value, types.ModuleType):
        parent, _, last = value.__name__.rpartition(".")
        return stub.offer(parent, last, name)
    if isinstance(value, type):
        return stub.offer(value.__module__, value.__qualname__, name)
    if isinstance(value, types.FunctionType):
        home = importlib.import_module(value.__module__)
        # Functions whose arguments are converted have the signature of what they call.
        called = getattr(value, "__wrapped__", value)
        plain = "__signature__" not in vars(called) and (
            inspect.signature(value) == inspect.signature(called)
        )
        made = module == value.__module__ or getattr(home, name, None) is not value
        rewritten = {*OVERLOADS, "engine"}
        if plain and not made and _defined(value.__module__, name) and name not in rewritten:
            return stub.offer(value.__module__, name, name)
        others = () if module == "asyncgrad" else asyncgrad.__all__
        for other in others:
            if getattr(asyncgrad, other) is value:
                return stub.offer("asyncgrad", other, name)
        return stub.function(name, value)
    kind = "DType" if value is None and name == "bfloat16" else type(value).__qualname__
    origin = "asyncgrad.ops.dtype" if kind == "DType" else type(value).__module__
    if name == "newaxis":
        return ["newaxis: None"]
    if origin != "builtins":
        stub.imports.add(f"from {origin} import {kind} as _{kind}")
        # The underscore, because the class may be public by another name, such as `dtype`.
        return [f"{name}: _{kind}"]
    return [f"{name}: {stub.name_for(kind, 'asyncgrad')}"]


def _defined(module: str, name: str) -> bool:
    """Whether a type checker sees the function as it is: at the top, no decorator changes it.

    Of decorators that may change it, the caller compares the signatures.
    """
    unchanged = ("overload", "requires(", "converted", "one_node(")
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name == name
        and all(ast.unparse(one).startswith(unchanged) for one in node.decorator_list)
        for node in _source(module).body
    )


def methods_stub() -> str:
    """The stub of the class that holds the methods that `Tensor` gets at run time."""
    (kind,) = [
        node for node in _source("asyncgrad.tensor").body
        if isinstance(node, ast.ClassDef) and node.name == "Tensor"
    ]  # fmt: skip
    seen = set(dir(object)) - {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
    seen |= {"__module__", "__slots__", "__annotations__"}
    seen |= {"__static_attributes__", "__firstlineno__"}  # since Python 3.13
    for node in kind.body:
        if isinstance(node, ast.FunctionDef):
            seen.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            seen |= {one.id for one in targets if isinstance(one, ast.Name)}
    attached = {n: v for n, v in vars(asyncgrad.Tensor).items() if n not in seen}
    stub = Stub("The methods that tensors get at run time.", attached, exports=False)
    stub.imports.add("from asyncgrad.core.variable import Variable")
    stub.body.append("class Methods(Variable):")
    stub.body.append(
        '    """The methods that `Tensor` gets at run time; for type checkers alone."""\n'
    )
    for name in sorted(attached):
        lines = stub.function(name, attached[name], method=True)
        stub.body += [f"    {line}".rstrip() for line in lines]
    return stub.text()


def path_of(name: str) -> Path:
    """The path of the stub of a module."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return path / "__init__.pyi" if path.is_dir() else path.with_suffix(".pyi")


def files() -> dict[Path, str]:
    """The text of each stub."""
    modules = {path_of(name): module_stub(name) for name in MODULES}
    return {path_of(METHODS): methods_stub(), **modules}


def main() -> int:
    """Write the files, or compare them."""
    old = [
        path for path, text in files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]  # fmt: skip
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{path} is out of date" for path in old) or "up to date")
        return 1 if old else 0
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
