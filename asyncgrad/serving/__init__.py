"""Parts of a service: batched requests, admission control, and work for clients that disconnect.

A thin layer over anyio without a web framework: handlers of any framework can await these.
"""

from functools import partial

from asyncgrad.serving.admission import Admission, AdmissionStatistics, Overloaded
from asyncgrad.serving.batcher import Batcher, BatcherStatistics
from asyncgrad.serving.disconnect import Disconnected, unless_disconnected

__all__ = [
    "Admission", "AdmissionStatistics", "Batcher", "BatcherStatistics", "Disconnected",
    "Overloaded", "unless_disconnected",
]  # fmt: skip
__dir__ = partial(sorted, __all__)
