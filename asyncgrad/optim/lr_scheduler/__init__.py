"""Schedules of the learning rate, PyTorch's `torch.optim.lr_scheduler`.

A schedule changes `lr` in the optimiser's groups with each `step()`. Most multiply it by a factor
that depends on the epoch alone, so that several schedules of one optimiser combine.
"""

from asyncgrad.optim.lr_scheduler.base import LRScheduler
from asyncgrad.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from asyncgrad.optim.lr_scheduler.cycles import CosineAnnealingWarmRestarts, CyclicLR
from asyncgrad.optim.lr_scheduler.factors import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from asyncgrad.optim.lr_scheduler.one_cycle import OneCycleLR
from asyncgrad.optim.lr_scheduler.plateau import ReduceLROnPlateau

#: The name that the base class had in older programs.
_LRScheduler = LRScheduler

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
