"""Windows, and Fourier transforms of parts of a signal."""

import numpy as np
import oracle
import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch
WINDOWS = {
    "hann_window": (), "hamming_window": (0.6, 0.4), "blackman_window": (), "bartlett_window": (),
    "kaiser_window": (7.0,),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_pytorchs(name):
    for length in (0, 1, 2, 7, 8):
        for more in ((), (True,), (False,), (False, *WINDOWS[name])):
            found = [getattr(T, name)(length, *more, dtype=T.float64) for T in (torch, ag)]
            oracle.compare(*found)
    assert getattr(ag, name)(3, requires_grad=True).requires_grad
    oracle.check_refused(lambda T: getattr(T, name)(-1))
    oracle.check_refused(lambda T: getattr(T, name)(2, dtype=T.int64))
    oracle.check_refused(lambda T: getattr(T, name)(2, wrong=1))


@pytest.mark.filterwarnings("ignore:A window was not provided", "ignore:stft with return_complex")
@pytest.mark.parametrize("name", ["stft", "istft"])
def test_values_and_derivatives_are_pytorchs(name):
    oracle.check(name, dtypes=("float64", "complex128", "float32", "complex64"), limit=8)
    assert oracle.check_forward(name, limit=3)


RNG = np.random.default_rng(0)
SIGNAL = RNG.standard_normal((2, 40))


def _there(T, **options):
    x, window = T.tensor(SIGNAL), T.hann_window(8, dtype=T.float64)
    return T.stft(x, 8, window=window, return_complex=True, **options)


def _back(T, length=None, n_fft=8, **options):
    return T.istft(_there(T, **options), n_fft, window=T.hann_window(8, dtype=T.float64),
                   length=length, **options)  # fmt: skip


CALLS = {
    "plain": lambda T: (_there(T), _back(T), _back(T, 37)),
    "two sides": lambda T: _back(T, onesided=False),
    "normalized": lambda T: (_there(T, normalized=True), _back(T, normalized=True)),
    "constant frame": lambda T: _there(T, pad_mode="constant"),
    "long steps": lambda T: _back(T, hop_length=3),
    "two parts": lambda T: T.stft(T.tensor(SIGNAL[0]), 8, return_complex=False),
    "complex": lambda T: T.istft(
        T.stft(T.tensor(SIGNAL + 1j), 8), 8, onesided=False, return_complex=True
    ),
    "narrow window": lambda T: T.tensor(SIGNAL).stft(
        8, 2, 5, T.hamming_window(5, dtype=T.float64), center=False, return_complex=True
    ),
    "aligned": lambda T: T.tensor(SIGNAL).stft(
        8, 2, 4, center=False, return_complex=True, align_to_window=True
    ),
    "left out": lambda T: _back(T, center=False),
    "unsaid": lambda T: T.stft(T.tensor(SIGNAL), 8),
    "longer than the signal": lambda T: T.stft(T.ones(4), 8, center=False, return_complex=True),
    "frame longer than the signal": lambda T: T.stft(T.ones(3), 8, return_complex=True),
    "no points": lambda T: T.stft(T.ones(4), 0, return_complex=True),
    "no steps": lambda T: T.stft(T.ones(9), 4, 0, return_complex=True),
    "a wide window": lambda T: T.stft(T.ones(9), 4, win_length=5, return_complex=True),
    "another window": lambda T: T.stft(T.ones(9), 4, window=T.ones(3), return_complex=True),
    "integers": lambda T: T.stft(T.tensor([1, 2, 3, 4, 5]), 4, return_complex=True),
    "three axes": lambda T: T.stft(T.ones(1, 1, 9), 4, return_complex=True),
    "half of complex numbers": lambda T: T.stft(T.ones(9) * 1j, 4, onesided=True),
    "real spectrum": lambda T: T.istft(T.ones(5, 3), 8),
    "wrong number of frequencies": lambda T: T.istft(T.ones(4, 3) * 1j, 8),
    "far steps": lambda T: T.istft(T.ones(5, 3) * 1j, 8, 9),
    "no spectrum": lambda T: T.istft(T.ones(0, 3) * 1j, 8),
    "complex of a half": lambda T: T.istft(T.ones(5, 3) * 1j, 8, return_complex=True),
}


@pytest.mark.filterwarnings("ignore:A window was not provided", "ignore:stft with return_complex",
                            "ignore:.*deprecated")  # fmt: skip
@pytest.mark.parametrize("name", CALLS)
def test_what_samples_leave_out_is_as_in_pytorch(name):
    oracle.check_call(lambda T, tensor: CALLS[name](T))


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_a_signal_that_is_too_short_is_padded():
    """With PyTorch's warning."""
    with pytest.warns(UserWarning, match="length of signal is shorter") as warned:
        found = [_back(T, 60) for T in (torch, ag)]
    assert len(warned) >= 2
    oracle.compare(*found)


def test_an_example_of_a_batch_gets_what_it_would_get_alone():
    x = ag.tensor(SIGNAL)

    def both(x):
        spectrum = ag.stft(x, 8, window=ag.hann_window(8, dtype=ag.float64), return_complex=True)
        return ag.istft(spectrum * 2, 8, window=ag.hann_window(8, dtype=ag.float64))

    np.testing.assert_allclose(ag.func.vmap(both)(x).numpy(), 2 * SIGNAL, rtol=1e-9)
