"""What several services need: batches of requests, admission, and clients that go away.

Thin, over anyio, and without a web framework: a handler of any of them awaits these.
"""

from asyncgrad.serving.admission import Admission, AdmissionStatistics, Overloaded
from asyncgrad.serving.batcher import Batcher, BatcherStatistics
from asyncgrad.serving.disconnect import Disconnected, unless_disconnected

__all__ = [
    "Admission",
    "AdmissionStatistics",
    "Batcher",
    "BatcherStatistics",
    "Disconnected",
    "Overloaded",
    "unless_disconnected",
]
