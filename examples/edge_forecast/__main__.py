"""Forecasting at the edge: a home's hub that trains its own forecaster while it works.

One asyncio program with asyncgrad's core dependencies and nothing else: NumPy, anyio and
threadpoolctl. Sensors, a scheduler and a small page stay responsive while a network of three layers
learns from years of weather; training can be cancelled at any moment, and no half-trained model is
ever published. Installed, that is some 90 MB where PyTorch's CPU build is 865, and 52 MB of
resident memory at most where the same training with PyTorch has 318 (Linux, x86-64, Python 3.11).
Left out: real sensors, and weights that outlive the program (`asyncgrad.serialization` keeps them).

Run `python -m examples.edge_forecast`, or this file.
"""

import sys

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended

if __name__ == "__main__":
    try:
        if not __package__:  # started by its path
            sys.path[0] = __file__.rsplit("/examples/", 1)[0]
        from examples.edge_forecast.command import main

        status = main()
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)
