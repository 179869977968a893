"""Optimisers by the update that they declare, and options that each of them has."""

from functools import partial

from asyncgrad import optim

OPTIMIZERS = {
    "sgd": partial(optim.SGD, lr=0.1),
    "sgd_momentum": partial(optim.SGD, lr=0.1, momentum=0.9, dampening=0.3),
    "sgd_momentum, nesterov": partial(optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "asgd": partial(optim.ASGD, lr=0.1, lambd=0.1, t0=2),
    "adam": partial(optim.Adam, lr=0.1),
    "adam, decoupled": partial(optim.AdamW, lr=0.1),
    "adam_amsgrad": partial(optim.Adam, lr=0.1, amsgrad=True),
    "adamax": partial(optim.Adamax, lr=0.1),
    "nadam": partial(optim.NAdam, lr=0.1),
    "nadam, decoupled": partial(optim.NAdam, lr=0.1, decoupled_weight_decay=True),
    "radam": partial(optim.RAdam, lr=0.1),
    "adadelta": partial(optim.Adadelta, lr=0.5),
    "adagrad": partial(optim.Adagrad, lr=0.1, lr_decay=0.1),
    "rmsprop": partial(optim.RMSprop, lr=0.1),
    "rmsprop_centered": partial(optim.RMSprop, lr=0.1, centered=True),
    "rmsprop_momentum": partial(optim.RMSprop, lr=0.1, momentum=0.5),
    "rmsprop_momentum_centered": partial(optim.RMSprop, lr=0.1, momentum=0.5, centered=True),
    "rprop": partial(optim.Rprop, lr=0.1),
}
OPTIONS = ({}, {"weight_decay": 0.1}, {"maximize": True}, {"weight_decay": 0.1, "maximize": True})
#: Every optimiser with all options that it has.
CASES = [
    (name, options)
    for name in OPTIMIZERS
    for options in OPTIONS
    if name != "rprop" or "weight_decay" not in options
]
