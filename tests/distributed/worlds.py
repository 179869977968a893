"""What holds in a world on any engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest
from models import Affine, Outer, gradients, refuses

import asyncgrad as ag

if TYPE_CHECKING:
    from asyncgrad.distributed import World


def leaf() -> ag.Tensor:
    return ag.tensor(np.array([0.1, -0.2, 0.3]), requires_grad=True)


async def passes_as_one_process(world: World) -> None:
    """A part that calls another has the bits of one process; errors come back."""
    inner = await world.remote(0, Affine, 3.0)
    outer = await world.remote(1, Outer, inner)
    x, y = leaf(), leaf()
    await (await outer(x)).sum().backward()
    own, here = Affine(0.5), Affine(3.0)
    await here(here(own(y))).sum().backward()
    assert x.grad.tolist() == y.grad.tolist()
    assert await inner.apply(gradients) == gradients(here)
    with pytest.raises(ValueError, match="planned") as caught:
        await world.remote(0, refuses)
    assert "on worker 0, during remote" in caught.value.__notes__
    with pytest.raises(Exception, match="pickle"):
        await world.remote(0, Affine, asyncio.get_running_loop())
