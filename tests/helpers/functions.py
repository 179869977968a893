"""Custom Functions of plain functions, in either library."""


def function_of(T, forward=lambda ctx, x: x * 1, backward=lambda ctx, g: g, **others):
    """A Function of these static methods."""
    methods = {"forward": forward, "backward": backward, **others}
    statics = {name: staticmethod(method) for name, method in methods.items()}
    return type("Custom", (T.autograd.Function,), statics)
