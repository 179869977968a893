"""Random numbers that a CUDA device draws: each is a function of a seed and of its place.

Sources: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011 (Philox 4x32 with ten
rounds); Box and Muller, "A note on the generation of random normal deviates", 1958.
"""

from __future__ import annotations

from typing import Any

from asyncgrad.aliases import DType

#: Four random words of 32 bits for each place, and numbers made of them.
_FUNCTIONS = """
struct Words { unsigned a, b, c, d; };

__device__ Words words(unsigned long long key, unsigned long long high, unsigned long long low) {
    unsigned first = key, second = key >> 32;
    Words w = {unsigned(low), unsigned(low >> 32), unsigned(high), unsigned(high >> 32)};
    for (int round = 0; round < 10; round++) {
        const unsigned above = __umulhi(0xD2511F53u, w.a), below = 0xD2511F53u * w.a;
        const unsigned over = __umulhi(0xCD9E8D57u, w.c), under = 0xCD9E8D57u * w.c;
        w = {over ^ w.b ^ first, under, above ^ w.d ^ second, below};
        first += 0x9E3779B9u;
        second += 0xBB67AE85u;
    }
    return w;
}
__device__ void uniform(Words w, float& y) { y = (w.a >> 8) / 16777216.0f; }
__device__ void uniform(Words w, double& y) {
    y = ((unsigned long long)(w.a >> 5) << 26 | w.b >> 6) / 9007199254740992.0;
}
__device__ void normal(Words w, float& y) {
    y = sqrtf(-2 * logf((w.a + 0.5f) / 4294967296.0f)) * cospif(w.b / 2147483648.0f);
}
__device__ void normal(Words w, double& y) {
    double radius, angle;
    uniform(w, radius);
    uniform({w.c, w.d}, angle);
    y = sqrt(-2 * log(radius + 1 / 18014398509481984.0)) * cospi(2 * angle);
}
"""
_INPUTS = "uint64 key, uint64 high, T scale, T offset"


class Draws:
    """The kernels that draw, compiled on their first call."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._kernels: dict[str, Any] = {}

    def __call__(
        self, kind: str, seeds: tuple[int, int], shape: tuple[int, ...], dtype: DType,
        scale: float, offset: float,
    ) -> Any:  # fmt: skip
        """Draw numbers in the current stream, as `Device.draw` says."""
        kernel = self._kernels.get(kind)
        if kernel is None:
            body = f"{kind}(words(key, high, i), y); y = y * scale + offset"
            kernel = self._kernels[kind] = self._cupy.ElementwiseKernel(
                _INPUTS, "T y", body, f"asyncgrad_{kind}", preamble=_FUNCTIONS
            )
        out = self._cupy.empty(shape, dtype)
        kernel(*seeds, scale, offset, out)
        return out
