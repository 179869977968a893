"""The functions that create tensors, collected for the packages above this one."""

from asyncgrad.ops.api.creation import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.data import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.api.random import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.tensors.rng import Generator as Generator
from asyncgrad.ops.tensors.rng import default_generator as default_generator
