"""Hooks of all modules, and those on a module's last node, beside PyTorch's."""

import pytest

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

KINDS = (
    "forward_pre_hook",
    "forward_hook",
    "full_backward_pre_hook",
    "full_backward_hook",
    "backward_hook",
)


def record(library, kinds, fail=False):
    """What hooks of all modules, and of one below another, are told, in their order."""
    seen = []

    def noted(kind, scope):
        def hook(module, *given):
            gradients = "backward" in kind and [
                [None if g is None else g.tolist() for g in part]
                for part in given
                if isinstance(part, tuple)
            ]
            seen.append((kind, scope, type(module).__name__, len(given), gradients))

        return hook

    inner = library.nn.Linear(2, 2, bias=False)
    model = library.nn.Sequential(inner, library.nn.ReLU())
    with library.no_grad():
        inner.weight.copy_(library.tensor([[1.0, 2.0], [0.5, -1.0]]))
    handles = []
    for kind in kinds:
        register = getattr(library.nn.modules.module, f"register_module_{kind}")
        handles.append(register(noted(kind, "all")))
        handles.append(getattr(inner, f"register_{kind}")(noted(kind, "one")))
    x = library.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    model(x).sum().backward()
    for handle in handles:
        handle.remove()
    before = len(seen)
    model(x).sum().backward()
    assert len(seen) == before
    return seen


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook")
@pytest.mark.parametrize("kinds", [*((kind,) for kind in KINDS), KINDS[:-1]], ids="+".join)
def test_hooks_of_all_modules_are_called_as_pytorchs(kinds, monkeypatch):
    # PyTorch remembers which kind of backward hooks was registered first.
    monkeypatch.setattr(torch.nn.modules.module, "_global_is_full_backward_hook", None)
    mine, other = record(ag, kinds), record(torch, kinds)
    assert [entry[:4] for entry in mine] == [entry[:4] for entry in other]
    for (*_, found), (*_, expected) in zip(mine, other, strict=True):
        if kinds != ("backward_hook",):
            assert found == expected


def test_hooks_of_all_modules_replace_what_they_are_given():
    module = ag.nn.modules.module
    with module.register_module_forward_pre_hook(lambda _, args: (args[0] + 1,)):
        assert ag.nn.Identity()(1) == 2
    with module.register_module_forward_hook(lambda _, args, kwargs, out: 7, with_kwargs=True):
        assert ag.nn.Identity()(1) == 7
    seen = []
    with (
        module.register_module_forward_hook(lambda *given: seen.append(given[2]), always_call=True),
        pytest.raises(NotImplementedError),
    ):
        ag.nn.Module()(1)
    assert seen == [None]
    assert ag.nn.Identity()(1) == 1


def test_hooks_on_nodes_and_on_modules_exclude_one_another():
    for library in (ag, torch):
        module = library.nn.Linear(1, 1)
        module.register_full_backward_hook(print)
        with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full"):
            module.register_backward_hook(print)
        module = library.nn.Linear(1, 1)
        module.register_backward_hook(print)
        with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full"):
            module.register_full_backward_hook(print)
