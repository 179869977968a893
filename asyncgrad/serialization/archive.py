"""PyTorch's `.pt` files: zip archives with one pickle and the memory of its tensors."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from pickle import UnpicklingError
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from asyncgrad.creation import from_numpy
from asyncgrad.devices import CPU
from asyncgrad.ops.dtype_device import as_device
from asyncgrad.ops.tensors.transfer import moved
from asyncgrad.serialization.legacy import LegacyFile, is_legacy
from asyncgrad.serialization.pickle_calls import Storage
from asyncgrad.serialization.pickle_reader import read_pickle
from asyncgrad.serialization.pickle_writer import PickleWriter
from asyncgrad.serialization.storages import dtype_of
from asyncgrad.types import Array

if TYPE_CHECKING:
    import zipfile

#: What `zipfile` raises for damaged files, beside its own error: OSError or ValueError for a
#: negative position, OverflowError for one beyond 64 bits, ValueError for a name that is not text.
_DAMAGE = (EOFError, NotImplementedError, OverflowError, ValueError, struct.error)
#: The number of bytes to read at a time.
_PIECE = 1 << 20


def save(
    obj: object, f: str | os.PathLike[str] | IO[bytes], pickle_module: object = None,
    pickle_protocol: int = 2,
) -> None:  # fmt: skip
    """Write tensors, numbers, strings, bytes and plain containers of them to a `.pt` file.

    Args:
        obj: for example, a state dict. `torch.load(path)` can read the file, too. A view is saved
            with the whole memory of its base, so that tensors that share memory share it again
            after loading. Graphs are not saved: loaded tensors are leaves.
        f: a path, or a file open for writing.
        pickle_module, pickle_protocol: no effect: files have a pickle of protocol 2.

    Raises:
        TypeError: if `obj` holds anything else; then nothing is written.
        ValueError: if a container contains itself.
    """
    import zipfile

    writer = PickleWriter()
    pickle = writer.finish(obj)
    target: Any = f
    if hasattr(f, "write"):
        # `zipfile` would go back in the file, which gzip's can't. It has to be told the number of
        # bytes, which not every `write` returns.
        target = SimpleNamespace(
            write=lambda part: f.write(part) or len(part), flush=getattr(f, "flush", lambda: None)
        )
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", b"little")
        for number, array in enumerate(writer.storages):
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            info = zipfile.ZipInfo(f"archive/data/{number}")
            info.file_size = little.nbytes
            with archive.open(info, "w") as stream:
                stream.write(np.ascontiguousarray(little).reshape(-1).view(np.uint8).data)
        archive.writestr("archive/version", b"3\n")


def load(
    f: str | os.PathLike[str] | IO[bytes], map_location: str | None = None,
    pickle_module: object = None, *, weights_only: bool | None = None, mmap: bool | None = None,
) -> Any:  # fmt: skip
    """Read tensors, numbers, strings and plain containers from a `.pt` file.

    Args:
        f: a path, or a seekable file open for reading. The format from before PyTorch 1.6 is
            supported, too.
        map_location: the devices of the tensors: a device; a mapping by the names of the devices
            they were saved from; or a function of a tensor and such a name that returns a device
            or a tensor on it. Tensors without an entry go to the CPU, as do all if it is None.
        pickle_module, weights_only: no effect: code from a file is never run.
        mmap: no effect: tensors are read when the file is.

    Returns:
        The saved object. Tensors that shared memory share it again.

    Raises:
        UnpicklingError: if the file holds anything else, or sizes do not match.
        RuntimeError: if the file is damaged or not PyTorch's, or if a device does not exist.
    """
    import zipfile

    if not (map_location is None or isinstance(map_location, Mapping) or callable(map_location)):
        # What is no device is refused even if the file holds no tensors.
        map_location = as_device("load", map_location)  # type: ignore[assignment]

    def placed(memory: Array, location: str) -> Storage:
        device = _device_for(map_location, memory, location)
        return Storage(memory if device is CPU else moved(memory, CPU, device), device)

    with contextlib.ExitStack() as stack:
        stream: Any = f if hasattr(f, "read") else stack.enter_context(open(os.fspath(f), "rb"))
        try:
            with _reading():
                archive = stack.enter_context(zipfile.ZipFile(stream))
        except RuntimeError:
            stream.seek(0)
            data = stream.read()
            if _is_safetensors(data):
                raise RuntimeError(
                    "load: this is a safetensors file; asyncgrad.serialization.load_safetensors() "
                    "reads it"
                ) from None
            if not is_legacy(data):
                raise
            return LegacyFile(data, placed).load()
        return _Archive(archive, placed).load()


def _is_safetensors(data: bytes) -> bool:
    """Whether data begin as safetensors do: with the length of a JSON object, then the object."""
    return data[8:9] == b"{" and int.from_bytes(data[:8], "little") <= len(data) - 8


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Turn all errors of `zipfile` for a damaged archive into one kind of error."""
    from zipfile import BadZipFile

    try:
        yield
    except (*_DAMAGE, BadZipFile, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise RuntimeError(
            f"load: this is no file of torch.save(), or it is damaged: {error or 'it ends early'}"
        ) from error


def _device_for(map_location: Any, memory: Array, location: str) -> Any:
    """The device of a storage that was saved from a location."""
    if isinstance(map_location, Mapping):
        map_location = map_location.get(location)
    elif callable(map_location):
        found = map_location(from_numpy(memory), location)
        map_location = getattr(found, "device", found)
    return as_device("load", map_location)


class _Archive:
    """An open archive; sizes in it are checked before they are used."""

    def __init__(self, archive: zipfile.ZipFile, placed: Callable[[Any, str], Storage]) -> None:
        self._archive = archive
        self._placed = placed
        self._entries = {info.filename: info for info in archive.infolist()}
        stream = archive.fp
        assert stream is not None
        length = stream.seek(0, os.SEEK_END)
        # Compressed or overlapping entries could make a small file expand to a large one.
        # 0 is `ZIP_STORED`.
        if any(info.compress_type for info in self._entries.values()):
            raise RuntimeError("load: the archive is compressed, which PyTorch's never are")
        if sum(info.file_size for info in archive.infolist()) > length:
            raise RuntimeError("load: the archive's entries are larger than itself")
        pickles = [name for name in self._entries if name.endswith("/data.pkl")]
        if len(pickles) != 1 or pickles[0].count("/") != 1:
            raise RuntimeError(
                "load: the archive is not of PyTorch's format: there is no data.pkl, or several"
            )
        self._prefix = pickles[0].removesuffix("data.pkl")
        self._swapped = self._byte_order() != sys.byteorder
        self._storages: dict[str, tuple[str, Storage]] = {}

    def load(self) -> Any:
        return read_pickle(self._contents("data.pkl"), self._storage)[0]

    def _contents(self, name: str) -> bytes:
        with _reading():
            return self._archive.read(self._prefix + name)

    def _byte_order(self) -> str:
        known = f"{self._prefix}byteorder" in self._entries
        order = self._contents("byteorder") if known else b"little"
        if order not in {b"little", b"big"}:
            raise RuntimeError(f"load: unknown byte order {order[:16]!r}")
        return order.decode()

    def _storage(self, kind: str, key: str, count: int, location: str) -> Storage:
        """The memory of a storage, read at the first call for its key."""
        known = self._storages.get(key)
        if known is None:
            known = self._storages[key] = (kind, self._placed(self._read(kind, key), location))
        size = known[1].array.size
        if known[0] != kind or size != count:
            raise UnpicklingError(
                f"load: storage {key} has {size} elements of {known[0]}, but the pickle "
                f"says {count} of {kind}"
            )
        return known[1]

    def _read(self, kind: str, key: str) -> np.ndarray[Any, Any]:
        info = self._entries.get(f"{self._prefix}data/{key}")
        if info is None:
            raise RuntimeError(f"load: the archive has no storage {key!r}")
        dtype = dtype_of(kind)
        if info.file_size % dtype.itemsize:
            raise UnpicklingError(
                f"load: storage {key} has {info.file_size} bytes, which is no multiple of "
                f"{dtype.itemsize} for {kind}"
            )
        memory = np.empty(info.file_size, np.uint8)
        start = 0
        with _reading(), self._archive.open(info) as stream:
            while piece := stream.read(_PIECE):
                memory[start : start + len(piece)] = np.frombuffer(piece, np.uint8)
                start += len(piece)
        if start != memory.size:
            raise RuntimeError(f"load: the archive ends within storage {key}")
        stored: np.ndarray[Any, Any] = memory.view(dtype)
        return stored.byteswap(inplace=True) if self._swapped else stored
