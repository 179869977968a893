"""Models and passes on several machines, by Dask or Ray: parts on workers, data parallelism.

A backward pass that crosses workers adds all its gradients on all of them, or none. See
docs/distributed.md.
"""

from asyncgrad.distributed import autograd, nn, optim, pipelining
from asyncgrad.distributed.errors import PassEndedError, WorkerLostError
from asyncgrad.distributed.group import (
    ReduceOp,
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    get_rank,
    get_world_size,
)
from asyncgrad.distributed.ray_engine import RayEngine
from asyncgrad.distributed.remote import RemoteCall, RemoteModule
from asyncgrad.distributed.remote_optimizer import RemoteOptimizer
from asyncgrad.distributed.replicated import ReplicatedModel
from asyncgrad.distributed.world import World, connect

__all__ = [
    "PassEndedError", "RayEngine", "ReduceOp", "RemoteCall", "RemoteModule", "RemoteOptimizer",
    "ReplicatedModel", "WorkerLostError", "World", "all_gather", "all_reduce", "autograd",
    "barrier", "broadcast", "connect", "get_rank", "get_world_size", "nn", "optim", "pipelining",
]  # fmt: skip
