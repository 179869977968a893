"""A hosted training API: `await forward_backward(batch)`, `await optim_step()`, over HTTP.

Tenants share the frozen weights of a base model; each has low-rank adapters of its own, which only
its token reaches. Passes run with the tenant's priority, within its quota, and end when their
client goes away. Requests carry numbers and nothing that could run. With `--dask ADDRESS` the
workers of a cluster compute, and one may die. Left out: billing, and adapters that outlive the
process.

Run `python -m examples.training_api`; it prints a token. Then, in another terminal,
`python -m examples.training_api.script TOKEN`.
"""

import sys

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended

if __name__ == "__main__":
    try:
        if not __package__:  # started by its path
            sys.path[0] = __file__.rsplit("/examples/", 1)[0]
        from examples.training_api.command import main

        status = main()
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)
