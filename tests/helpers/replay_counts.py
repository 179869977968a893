"""How often the calls of a compiled function were recorded and replayed."""


def counts(function):
    """How many calls were recorded, and how many were replayed."""
    words = function.explain().splitlines()[0].split()
    return int(words[-4]), int(words[-2])


def replays(function):
    """How many calls were replayed."""
    return counts(function)[1]
