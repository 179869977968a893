"""`python -m examples.digits` and `python examples/digits/__main__.py` start here."""

import sys

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended

if __name__ == "__main__":
    try:  # around the imports too: they take their time
        if not __package__:  # started by its path
            sys.path[0] = __file__.rsplit("/examples/", 1)[0]
        from examples.digits.command import main

        status = main()
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)
