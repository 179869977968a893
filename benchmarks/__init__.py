"""Benchmarks of asyncgrad beside PyTorch. `python -m benchmarks` runs them all."""
