"""PyTorch's `torch.optim`; large updates can run in threads and be awaited (`step_async`)."""

from asyncgrad.optim import lr_scheduler, swa_utils
from asyncgrad.optim.adadelta import Adadelta
from asyncgrad.optim.adafactor import Adafactor
from asyncgrad.optim.adagrad import Adagrad
from asyncgrad.optim.adam import Adam, AdamW
from asyncgrad.optim.adamax import Adamax
from asyncgrad.optim.asgd import ASGD
from asyncgrad.optim.lbfgs import LBFGS
from asyncgrad.optim.muon import Muon
from asyncgrad.optim.nadam import NAdam
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.radam import RAdam
from asyncgrad.optim.rmsprop import RMSprop
from asyncgrad.optim.rprop import Rprop
from asyncgrad.optim.sgd import SGD
from asyncgrad.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils",
]  # fmt: skip
