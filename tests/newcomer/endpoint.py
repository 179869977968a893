"""An endpoint that answers with the gradient of a price by the features of a flat."""

import asyncio

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

import asyncgrad as ag
from asyncgrad import nn
from asyncgrad.serving import Admission, Overloaded

ag.manual_seed(1)
model = nn.Sequential(nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 1)).requires_grad_(False)
admission = Admission(limit=4, max_waiting=50)
app = FastAPI()


class Flat(BaseModel):
    area: float = Field(gt=0)
    rooms: float
    floor: float
    within: float = 1.0


@app.post("/price")
async def price(flat: Flat) -> dict[str, object]:
    deadline = asyncio.get_running_loop().time() + flat.within
    try:
        async with admission.enter(deadline=deadline):
            x = ag.tensor([flat.area, flat.rooms, flat.floor], requires_grad=True)
            (price,) = model(x)
            (slope,) = await ag.grad(price, x)
    except TimeoutError:
        raise HTTPException(504, "too late") from None
    except Overloaded:
        raise HTTPException(503, "too many requests") from None
    names = ["area", "rooms", "floor"]
    return {"price": price.item(), "by": dict(zip(names, slope.tolist(), strict=True))}
