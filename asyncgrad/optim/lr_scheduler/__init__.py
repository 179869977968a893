"""Learning rate schedules: PyTorch's `torch.optim.lr_scheduler`.

A schedule changes `lr` in the optimiser's groups at each `step()`. Most schedules multiply it by a
factor that depends only on the epoch, so that several schedules of one optimiser can be combined.
"""

from asyncgrad.optim.lr_scheduler.base import LRScheduler
from asyncgrad.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from asyncgrad.optim.lr_scheduler.cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
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
from asyncgrad.optim.lr_scheduler.plateau import ReduceLROnPlateau

#: The base class's name in older programs.
_LRScheduler = LRScheduler

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip
