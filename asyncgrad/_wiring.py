"""The functions of higher layers that lower ones call: the one list of these late bindings."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from asyncgrad import scheduler
from asyncgrad.autograd import graph
from asyncgrad.core import modes, node, run_node, saved_attributes, variable
from asyncgrad.devices import base, discovery, fp_errors, streams
from asyncgrad.func.batched import BatchedTensor
from asyncgrad.nn import module
from asyncgrad.ops import batching
from asyncgrad.ops.tensors import in_place
from asyncgrad.tensor import Tensor


def _compile(*args: Any, **options: Any) -> Any:
    """`asyncgrad.compile`, which is imported when it is called first."""
    return import_module("asyncgrad.replay").compile(*args, **options)


node.read_saved = saved_attributes.saved_attribute
node.list_saved = saved_attributes.saved_names
node.call = graph.call_recorded
# Hooks and Functions run in the context of their pass, so NumPy's errors are ignored there, too.
run_node.prepare_context = fp_errors.ignore_fp_errors
run_node.until_free = scheduler.until_free_for
variable.edge_from_base = in_place.edge_from_base
base.find_device = discovery.find
base.get_default = lambda: modes.current().device
base.set_default = lambda default: modes.install(modes.current().replace(device=default))
base.make_stream = streams.Stream.from_raw
discovery.chosen_device = streams.chosen_device
streams.get_scope = lambda: modes.current().streams
streams.set_scope = lambda scope: modes.install(modes.current().replace(streams=scope))
# `object.__new__` skips `Tensor.__new__`, which expects arguments.
variable.new_tensor = partial(object.__new__, Tensor)
module.replayed = _compile
batching.new_batched = partial(object.__new__, BatchedTensor)
