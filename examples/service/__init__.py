"""Handwritten digits in an async service: predicted, explained, learnt and adapted to."""
