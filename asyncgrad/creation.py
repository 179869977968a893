"""The functions that make tensors, for the packages above."""

from asyncgrad.ops.functions.creation import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.data import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.functions.random import *  # noqa: F403  the chapters say what is public
from asyncgrad.ops.generator import Generator as Generator
from asyncgrad.ops.generator import default_generator as default_generator
