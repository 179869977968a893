"""PyTorch's `torch.optim`: updates of parameters, awaited where they are large."""

from asyncgrad.optim import lr_scheduler
from asyncgrad.optim.adagrad import Adagrad
from asyncgrad.optim.adam import Adam, AdamW
from asyncgrad.optim.optimizer import Optimizer
from asyncgrad.optim.rmsprop import RMSprop
from asyncgrad.optim.sgd import SGD
from asyncgrad.optim.sparse_adam import SparseAdam

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "SparseAdam", "lr_scheduler"]
