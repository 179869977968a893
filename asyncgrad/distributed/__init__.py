"""Models and passes on several machines, by Dask or Ray: parts on workers, data parallelism.

A backward pass that crosses workers adds all its gradients on all of them, or none. See
docs/distributed.md.
"""

from typing import TYPE_CHECKING

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
from asyncgrad.remedies import remedies

__all__ = [
    "PassEndedError", "RayEngine", "ReduceOp", "RemoteCall", "RemoteModule", "RemoteOptimizer",
    "ReplicatedModel", "WorkerLostError", "World", "all_gather", "all_reduce", "autograd",
    "barrier", "broadcast", "connect", "get_rank", "get_world_size", "nn", "optim", "pipelining",
]  # fmt: skip

#: What to use instead, and PyTorch's functions that are not here.
_REMEDIES = {
    "`await world.run(function)` begins and ends what the ranks do together": (
        "init_process_group destroy_process_group is_initialized is_available get_backend"
    ),
    "all_gather and broadcast take any data that can be pickled": (
        "all_gather_object all_gather_into_tensor gather_object broadcast_object_list"
    ),
    "send to all ranks by all_gather or broadcast, and let each take its own": (
        "scatter scatter_object_list reduce_scatter reduce_scatter_tensor all_to_all "
        "all_to_all_single send recv isend irecv batch_isend_irecv send_object_list "
        "recv_object_list"
    ),
    "use all_reduce, which gives the result to all ranks": "reduce",
    "use all_gather, which gives what each has to all ranks": "gather",
    "barrier names the ranks that do not come within the timeout of the world": (
        "monitored_barrier"
    ),
    "collectives are those of all ranks: connect a world of fewer workers": (
        "new_group init_device_mesh"
    ),
    "`await world.remote(rank, factory)` makes a part, which is called and applied": "rpc",
    "a rank that has no batch left takes part with `await model.skip()`": "algorithms",
}

if not TYPE_CHECKING:
    __getattr__ = remedies(__name__, _REMEDIES)
