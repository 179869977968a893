"""The random numbers of a CUDA device, computed with NumPy: ten rounds of Philox 4x32."""

import numpy as np

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def words(key, high, count):
    """Four words of 32 bits for each of `count` places."""
    place = np.arange(count, dtype=np.uint64)
    first, second = (np.uint64(key >> shift & 0xFFFFFFFF) for shift in (0, 32))
    a, b = place & _LOW, place >> _HALF
    c, d = (np.full(count, high >> shift & 0xFFFFFFFF, np.uint64) for shift in (0, 32))
    for _ in range(10):
        one, other = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b, c, d = (
            (other >> _HALF) ^ b ^ first, other & _LOW, (one >> _HALF) ^ d ^ second, one & _LOW,
        )  # fmt: skip
        first = first + np.uint64(0x9E3779B9) & _LOW
        second = second + np.uint64(0xBB67AE85) & _LOW
    return a, b, c, d


def _uniform(a, b, dtype):
    if dtype == np.float32:
        return (a >> np.uint64(8)).astype(dtype) / dtype.type(1 << 24)
    return ((a >> np.uint64(5) << np.uint64(26)) | (b >> np.uint64(6))) / 2.0**53


def uniform(seeds, shape, dtype):
    """Uniform numbers in [0, 1)."""
    a, b, _, _ = words(*seeds, int(np.prod(shape)))
    return _uniform(a, b, np.dtype(dtype)).reshape(shape)


def normal(seeds, shape, dtype):
    """Standard normal numbers."""
    a, b, c, d = words(*seeds, int(np.prod(shape)))
    dtype = np.dtype(dtype)
    if dtype == np.float32:
        radius, angle = (a + 0.5) / 2.0**32, b / 2.0**32
    else:
        radius, angle = _uniform(a, b, dtype) + 2.0**-54, _uniform(c, d, dtype)
    made = np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)
    return made.astype(dtype).reshape(shape)
