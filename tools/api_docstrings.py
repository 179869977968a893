"""Signatures and docstrings as Markdown."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any, Literal, get_origin

from asyncgrad import choices

_WIDTH = 88
#: The words that an option may be, by the name of its type.
_WORDS = {name: str(kind) for name, kind in vars(choices).items() if get_origin(kind) is Literal}


class _Written:
    """An annotation that is printed as it was written."""

    def __init__(self, annotation: Any) -> None:
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        text = re.sub(r"\b[A-Z]\w+\b", lambda found: _WORDS.get(found[0], found[0]), text)
        self.text = text.replace("asyncgrad.", "").replace("typing.", "").strip("'")

    def __repr__(self) -> str:
        return self.text


def signature(name: str, value: Any, *, method: bool = False) -> str:
    """A signature, on several lines if it is long; only the name where there is no signature."""
    try:
        known = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    parameters = list(known.parameters.values())
    if method and parameters and parameters[0].name in {"self", "cls", "input"}:
        parameters = parameters[1:]
    empty = inspect.Parameter.empty
    parameters = [
        p if p.annotation is empty else p.replace(annotation=_Written(p.annotation))
        for p in parameters
    ]
    returns: Any = known.return_annotation
    if isinstance(value, type) or returns is empty or returns in {None, "None"}:
        returns = empty
    else:
        returns = _Written(returns)
    text = str(known.replace(parameters=parameters, return_annotation=returns))
    text = re.sub(r"<([\w.]+ )?([\w.]+)[^>]*>", r"\2", text)
    line = f"{name}{text}"
    if len(line) <= _WIDTH or not parameters:
        return line
    inside, _, after = text[1:].rpartition(")")
    return f"{name}(\n" + "".join(f"    {part},\n" for part in _split(inside)) + f"){after}"


def _split(parameters: str) -> list[str]:
    """The parameters of a signature, split at commas outside of brackets and quotes."""
    parts, depth, quote, begin = [], 0, "", 0
    for place, letter in enumerate(parameters):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and not depth:
            parts.append(parameters[begin:place].strip())
            begin = place + 1
    return [*parts, parameters[begin:].strip()]


_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Source|Example|Examples):(.*)$")


def _sections(doc: str) -> dict[str, str]:
    """The text of a docstring under "", and that of its sections by their names."""
    found: dict[str, list[str]] = {"": []}
    current = ""
    for line in doc.splitlines():
        match = _SECTION.match(line)
        if match:
            current = match[1].removesuffix("s") if match[1] == "Examples" else match[1]
            found[current] = [match[2].strip()] if match[2].strip() else []
        else:
            found[current].append(line)
    return {name: inspect.cleandoc("\n".join(lines)) for name, lines in found.items()}


def text_of(text: str) -> str:
    """A docstring's text as Markdown: outside of code, no character makes markup."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([<*_\[\]])", r"\\\1", part) for part in parts
    )


def _items(text: str) -> list[str]:
    """The items of a section such as "Args": `name: text`, of any number of lines."""
    lines: list[str] = []
    for line in text.splitlines():
        if line and not line.startswith(" ") and re.match(r"[\w*., ]+:(\s|$)", line):
            name, _, rest = line.partition(":")
            lines.append(f"- `{name}`: {text_of(rest.strip())}" if rest.strip() else f"- `{name}`")
        elif lines:
            lines[-1] += f" {text_of(line.strip())}" if line.strip() else ""
        else:
            lines.append(text_of(line.strip()))
    return lines


def _prose(text: str) -> list[str]:
    """A docstring's paragraphs; indented blocks are code."""
    written: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        if not block.strip():
            continue
        if all(line.startswith("    ") for line in block.splitlines()):
            written += ["```python", inspect.cleandoc(block), "```", ""]
        else:
            written += [text_of(block.replace("::", ":")), ""]
    return written


def example_block(example: str) -> list[str]:
    """An example as code with what it prints, or a link to the name it is shown at."""
    if re.fullmatch(r"ag[\w.]+", example):
        return [f"See the example of [`{example}`](#{anchor_of(example)}).", ""]
    return ["```pycon", example.strip("\n"), "```", ""]


def documented(value: Any, example: str) -> list[str]:
    """A docstring as Markdown."""
    found = _sections(doc_of(value))
    written = _prose(found[""])
    for title in ("Args", "Attributes", "Returns", "Yields", "Raises"):
        if found.get(title):
            name = {"Args": "Arguments"}.get(title, title)
            written += [f"**{name}**", "", *_items(found[title]), ""]
    if found.get("Source"):
        written += [f"**Source**: {text_of(found['Source'])}", ""]
    return written + (example_block(example) if example else [])


def doc_of(value: Any) -> str:
    """The docstring of a value itself, not the one that a class inherits."""
    if isinstance(value, type):
        return inspect.cleandoc(vars(value).get("__doc__") or "")
    if isinstance(value, functools.partial):
        return doc_of(value.func)
    return inspect.getdoc(value) or "" if callable(value) or isinstance(value, property) else ""


def own_example(value: Any) -> str:
    """The example in a docstring; nothing where it has none."""
    return _sections(doc_of(value)).get("Example", "")


def anchor_of(name: str) -> str:
    """The anchor of a name on its page."""
    return name.replace(".", "-")
