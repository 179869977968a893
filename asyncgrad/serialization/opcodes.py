"""Parses the operations in a pickle, as far as PyTorch's files need them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

#: For each opcode: the operation's name, and the format of its argument. The format is one of
#: `struct`; "bytes", "text" or "long" after it mean that many bytes follow. Or it is two lines.
_OPERATIONS = {
    b"\x80": ("PROTO", "<B"),
    b"\x95": ("FRAME", "<Q"),
    b".": ("STOP", ""),
    b"N": ("NONE", ""),
    b"\x88": ("NEWTRUE", ""),
    b"\x89": ("NEWFALSE", ""),
    b"J": ("PUSH", "<i"),
    b"K": ("PUSH", "<B"),
    b"M": ("PUSH", "<H"),
    b"\x8a": ("PUSH", "<B long"),
    b"\x8b": ("PUSH", "<I long"),
    b"G": ("PUSH", ">d"),
    b"\x8c": ("PUSH", "<B text"),
    b"X": ("PUSH", "<I text"),
    b"\x8d": ("PUSH", "<Q text"),
    b"C": ("PUSH", "<B bytes"),
    b"B": ("PUSH", "<I bytes"),
    b"\x8e": ("PUSH", "<Q bytes"),
    b"q": ("PUT", "<B"),
    b"r": ("PUT", "<I"),
    b"\x94": ("MEMOIZE", ""),
    b"h": ("GET", "<B"),
    b"j": ("GET", "<I"),
    b"(": ("MARK", ""),
    b")": ("TUPLE0", ""),
    b"\x85": ("TUPLE1", ""),
    b"\x86": ("TUPLE2", ""),
    b"\x87": ("TUPLE3", ""),
    b"t": ("TUPLE", ""),
    b"]": ("LIST", ""),
    b"}": ("DICT", ""),
    b"a": ("APPEND", ""),
    b"e": ("APPENDS", ""),
    b"s": ("SETITEM", ""),
    b"u": ("SETITEMS", ""),
    b"c": ("GLOBAL", "lines"),
    b"\x93": ("STACK_GLOBAL", ""),
    b"Q": ("BINPERSID", ""),
    b"R": ("REDUCE", ""),
    b"\x81": ("NEWOBJ", ""),
    b"b": ("BUILD", ""),
}


def operations(data: bytes, start: int = 0) -> Iterator[tuple[str, Any]]:
    """Iterate over the names and arguments of a pickle's operations; STOP gives the pickle's end.

    Args:
        data: the pickle, with other bytes before and after it.
        start: the position of the pickle.

    Raises:
        ValueError: for an operation that is not listed above, or a truncated argument.
    """
    position = start

    def take(count: int) -> bytes:
        nonlocal position
        if count > len(data) - position:
            raise ValueError(f"{count} bytes are missing at byte {position}")
        position += count
        return data[position - count : position]

    def take_line() -> str:
        end = data.find(b"\n", position)
        if end < 0:
            raise ValueError(f"a line at byte {position} has no end")
        return take(end + 1 - position)[:-1].decode()

    while position < len(data):
        code = take(1)
        if code not in _OPERATIONS:
            raise ValueError(f"operation {code!r} at byte {position - 1} is not supported")
        name, form = _OPERATIONS[code]
        if not form:
            yield name, position if name == "STOP" else None
            continue
        if form == "lines":
            yield name, (take_line(), take_line())
            continue
        number, _, kind = form.partition(" ")
        (argument,) = struct.unpack(number, take(struct.calcsize(number)))
        if kind:
            argument = take(argument)
            if kind == "text":
                argument = argument.decode("utf-8", "surrogatepass")
            elif kind == "long":
                argument = int.from_bytes(argument, "little", signed=True)
        yield name, argument
    raise ValueError("it has no end")
