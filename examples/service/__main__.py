"""A service that predicts handwritten digits, explains itself, and learns while it answers.

A FastAPI application on uvicorn. Requests are predicted in batches; input gradients and integrated
gradients explain them; corrections are learnt from in the background at low priority, and published
in one assignment; a request can be adapted to within its deadline; weights are kept in safetensors
files, and corrections until they are learnt, so that a kill loses nothing but an unfinished step.
Left out: users.

Run `python -m examples.service` and open http://127.0.0.1:8000. With `--workers 4` there are four
processes, of which one learns and all answer. The Dockerfile beside this file puts it in an image.
"""

import sys

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended

if __name__ == "__main__":
    try:
        if not __package__:  # started by its path
            sys.path[0] = __file__.rsplit("/examples/", 1)[0]
        from examples.service.command import main

        status = main()
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)
