"""PyTorch's `torch.optim`; large updates can run in threads and be awaited (`step_async`)."""

from asyncgrad.optim import lr_scheduler, swa_utils
from asyncgrad.optim.adafactor import Adafactor
from asyncgrad.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam, SparseAdam
from asyncgrad.optim.adaptive import Adadelta, Adagrad, RMSprop, Rprop
from asyncgrad.optim.lbfgs import LBFGS
from asyncgrad.optim.muon import Muon
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.sgd import ASGD, SGD

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils",
]  # fmt: skip
