"""A Function of two tensors and a number, whose backward asks a service for a factor."""

import asyncio

import asyncgrad as ag


class Huber(ag.autograd.Function):
    """Half the square of the difference where it is small, its absolute value elsewhere."""

    @staticmethod
    def forward(ctx, x, y, limit=1.0):
        ctx.save_for_backward(x, y)
        ctx.limit = limit
        difference = x - y
        small = difference.abs() <= limit
        return ag.where(small, difference**2 / 2, limit * (difference.abs() - limit / 2))

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        slope = gradient * (x - y).clamp(-ctx.limit, ctx.limit)
        by_x = slope if ctx.needs_input_grad[0] else None
        by_y = -slope if ctx.needs_input_grad[1] else None
        return by_x, by_y, None


class Remote(ag.autograd.Function):
    """`x * factor`, with a derivative that another service knows."""

    @staticmethod
    def forward(ctx, x, ask):
        ctx.ask = ask
        return x * 3

    @staticmethod
    async def backward(ctx, gradient):
        return gradient * await ctx.ask(), None


async def asked():
    await asyncio.sleep(0)
    return 3.0


async def main():
    x = ag.tensor([0.5, 4.0], requires_grad=True)
    y = ag.zeros(2)
    await Remote.apply(Huber.apply(x, y), asked).sum().backward()
    return x.grad.tolist()


if __name__ == "__main__":
    print(asyncio.run(main()))
