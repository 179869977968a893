"""The demo: train a classifier of handwritten digits while answering live requests.

One asyncio program, read from the inside out:

- `training.py`: the training loop, with `await loss.backward()` in the middle.
- `service.py`: the TCP service that answers from the newest weights while training goes on.
- `program.py`: the two together on one event loop, measured without and with training.
- `clients.py`: the clients, a process of their own, which measure the latencies.
- `variants.py`: the same program on asyncgrad, awaited and blocking, and on PyTorch (inline, and
  in a thread).
- `machine.py`: how quiet the machine is, which every figure has to be read against.
- `cores.py`: on Linux, a core for the loop and the others for what computes.
- `data.py`, `ticker.py`, `report.py`: the digits, the event loop's delay, the table.
- `command.py`: the command line.

`python -m examples.digits` runs it, `--help` says what can be changed.

It leaves out what a service needs beside this: batching of requests, authentication, checkpoints.
"""
