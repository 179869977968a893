"""Users search for PyTorch's messages: ours contain its phrase, and then say what helps."""

import copy
import functools
import re
import warnings
from pathlib import Path

import pytest
from functions import function_of

import asyncgrad as ag
import asyncgrad.utils.checkpoint

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def leaf(T, *values):
    return T.tensor(values or (1.0, 2.0), requires_grad=True)


def backward(T, forward=lambda ctx, x: x * 1, backward=lambda ctx, g: g):
    function_of(T, forward, backward).apply(leaf(T)).sum().backward()


def under(mode, make, change):
    """Change what was made under a mode."""
    with mode:
        tensor = make()
    change(tensor)


def twice(mode):
    with mode(), mode():
        pass


def hooked(T, *hooks):
    with T.autograd.graph.saved_tensors_hooks(*hooks):
        y = leaf(T).exp()
    y.sum().backward()


def dual(T, primal, tangent):
    with T.autograd.forward_ad.dual_level():
        T.autograd.forward_ad.make_dual(primal, tangent)


def call_twice(call):
    call()
    call()


def changed(T, function):
    y = leaf(T) * 1
    z = function(y).sum()
    y.add_(1)
    z.backward()


def checkpointed(T, function, **options):
    checkpoint = T.utils.checkpoint.checkpoint
    return checkpoint(function, leaf(T), **{"use_reentrant": False, **options})


def two_runs(first, second):
    """A function that does something else when it runs again."""
    runs = []

    def function(x):
        runs.append(1)
        return (first if len(runs) == 1 else second)(x)

    return function


def GC(T, function, **options):
    x = T.tensor([1.0, 2.0], dtype=T.float64, requires_grad=True)
    T.autograd.gradcheck(function, x, **options)


def evaluated(call, T):
    names = {name: getattr(T, name) for name in re.findall(r"\w+", call) if hasattr(T, name)}
    eval(call, names | {"F": T.nn.functional})


#: Calls of functions with wrong arguments.
WRONG = (Path(__file__).parents[1] / "helpers/wrong_calls.txt").read_text(encoding="utf-8")
CALLS = {
    **{call: functools.partial(evaluated, call) for call in WRONG.splitlines()},
    # -- starting a pass
    "no scalar": lambda T: leaf(T).backward(),
    "no graph": lambda T: T.ones(1).backward(),
    "second time": lambda T: call_twice((leaf(T).exp().sum()).backward),
    "unused": lambda T: T.autograd.grad(leaf(T).sum(), leaf(T)),
    "an input without gradient": lambda T: T.autograd.grad(leaf(T).sum(), T.ones(2)),
    "too few gradients": lambda T: T.autograd.grad([leaf(T).sum()] * 2, leaf(T), [T.ones(())]),
    "another shape": lambda T: (leaf(T) * 1).backward(T.ones(3)),
    "a complex gradient": lambda T: (leaf(T) * 1).backward(T.ones(2, dtype=T.complex64)),
    "a complex root": lambda T: T.ones(1, dtype=T.complex64, requires_grad=True).backward(),
    "no inputs": lambda T: leaf(T).sum().backward(inputs=[]),
    "unused forbidden": lambda T: T.autograd.grad(
        leaf(T).sum(), leaf(T), allow_unused=False, materialize_grads=True
    ),
    # -- leaves and what is computed
    "an integer leaf": lambda T: T.tensor([1], requires_grad=True),
    "an integer becomes a leaf": lambda T: T.tensor([1]).requires_grad_(),
    "an integer parameter": lambda T: T.nn.Parameter(T.tensor([1])),
    "a flag taken back": lambda T: (leaf(T) * 1).requires_grad_(False),
    "a flag of another type": lambda T: setattr(leaf(T), "requires_grad", "yes"),
    "a flag deleted": lambda T: delattr(leaf(T), "requires_grad"),
    "data deleted": lambda T: delattr(leaf(T), "data"),
    "a leaf changed": lambda T: leaf(T).add_(1),
    "a view of a leaf changed": lambda T: leaf(T)[0].add_(1),
    "out that requires grad": lambda T: T.add(T.ones(2), 1, out=leaf(T)),
    "to numpy": lambda T: leaf(T).numpy(),
    "copied": lambda T: copy.deepcopy(leaf(T) * 1),
    "truth of two": lambda T: bool(leaf(T)),
    "truth of none": lambda T: bool(T.ones(0)),
    "grad of another shape": lambda T: setattr(leaf(T), "grad", T.ones(3)),
    "grad itself": lambda T: (lambda x: setattr(x, "grad", x))(leaf(T)),
    "grad of another type": lambda T: setattr(leaf(T), "grad", 1),
    # -- hooks
    "retained without graph": lambda T: T.ones(2).retain_grad(),
    "hooked without graph": lambda T: T.ones(2).register_hook(id),
    "post-accumulate on no leaf": lambda T: (
        (leaf(T) * 1).register_post_accumulate_grad_hook(lambda x: None)
    ),
    "post-accumulate that returns": lambda T: (
        lambda x: (x.register_post_accumulate_grad_hook(lambda x: x * 1), x.sum().backward())
    )(leaf(T)),
    "a hook's size": lambda T: (
        lambda y: (y.register_hook(lambda g: g[0]), y.sum().backward())
    )(leaf(T) * 1),
    "a hook's type": lambda T: (
        lambda y: (y.register_hook(lambda g: 3), y.sum().backward())
    )(leaf(T) * 1),
    "a node hook's number": lambda T: (
        lambda y: (y.grad_fn.register_hook(lambda i, o: ()), y.sum().backward())
    )(leaf(T) * 1),
    "a mode of multi hooks": lambda T: (
        T.autograd.graph.register_multi_grad_hook([leaf(T)], id, mode="some")
    ),
    # -- views and changes in place
    "one of several views": lambda T: (leaf(T) * 1).unbind()[0].add_(1),
    "one of several parts": lambda T: (leaf(T) * 1).split(1)[0].mul_(2),
    "a Function's view": lambda T: (
        function_of(T, lambda ctx, x: x.view(-1)).apply(leaf(T) * 1).add_(1)
    ),
    "a view made under no_grad": lambda T: under(
        T.no_grad(), lambda: leaf(T).view(2), lambda v: v.add_(leaf(T))
    ),
    "a view of it": lambda T: (
        lambda x: under(
            T.no_grad(), lambda: x.view(2), lambda v: v.requires_grad_().view(2).mul_(2)
        )
    )(T.zeros(2)),
    "a view of one made in inference": lambda T: (
        lambda x: under(
            T.inference_mode(), lambda: x.view(2), lambda v: v.requires_grad_().view(2).mul_(2)
        )
    )(T.zeros(2)),
    "saved and changed": lambda T: changed(T, lambda y: y * y),
    "result changed": lambda T: (lambda y: (y.add_(1), y.sum().backward()))(leaf(T).exp()),
    "a view detached": lambda T: (leaf(T) * 1).unbind()[0].detach_(),
    "inference saved": lambda T: under(
        T.inference_mode(), lambda: T.ones(2), lambda x: x * leaf(T)
    ),
    "inference changed": lambda T: under(
        T.inference_mode(), lambda: T.ones(2), lambda x: x.add_(1)
    ),
    "inference becomes a leaf": lambda T: under(
        T.inference_mode(), lambda: T.ones(2), lambda x: x.requires_grad_()
    ),
    # -- Functions
    "gradient of another shape": lambda T: backward(T, backward=lambda ctx, g: T.ones(5)),
    "too many gradients": lambda T: backward(T, backward=lambda ctx, g: (g, g)),
    "no gradient": lambda T: backward(T, backward=lambda ctx, g: 3),
    "gradient of a number": lambda T: (
        function_of(T, lambda ctx, x, k: x * k, lambda ctx, g: (g, g))
        .apply(leaf(T), 3)
        .sum()
        .backward()
    ),
    "no forward": lambda T: type("None_", (T.autograd.Function,), {}).apply(leaf(T)),
    "both names": lambda T: function_of(T, vjp=lambda ctx, g: g).apply(leaf(T)).sum().backward(),
    "dirty number": lambda T: backward(T, lambda ctx, x: (ctx.mark_dirty(3), x * 1)[1]),
    "dirty and not returned": lambda T: backward(T, lambda ctx, x: (ctx.mark_dirty(x), x * 1)[1]),
    "number without gradient": lambda T: backward(
        T, lambda ctx, x: (ctx.mark_non_differentiable(3), x * 1)[1]
    ),
    "saved number": lambda T: backward(T, lambda ctx, x: (ctx.save_for_backward(3), x * 1)[1]),
    # -- saved tensors
    "freed": lambda T: (lambda y: (y.sum().backward(), y.grad_fn._saved_result))(leaf(T).exp()),
    "unpacked to no tensor": lambda T: hooked(T, lambda x: x, lambda x: 3),
    "packed in place": lambda T: hooked(T, lambda x: x.mul_(2), lambda x: x),
    "two pairs of hooks": lambda T: (
        lambda y: call_twice(lambda: y.grad_fn._raw_saved_result.register_hooks(id, id))
    )(leaf(T).exp()),
    "mutation nested": lambda T: twice(T.autograd.graph.allow_mutation_on_saved_tensors),
    # -- forward mode
    "levels nested": lambda T: twice(T.autograd.forward_ad.dual_level),
    "tangent of another shape": lambda T: dual(T, T.ones(2), T.ones(3)),
    "tangent of an integer": lambda T: dual(T, T.tensor([1]), T.ones(1)),
    "tangent outside": lambda T: T.autograd.forward_ad.make_dual(T.ones(2), T.ones(2)),
    # -- functional and func
    "jacobian of no tensor": lambda T: T.autograd.functional.jacobian(lambda x: 3, T.ones(2)),
    "strict": lambda T: (
        T.autograd.functional.jacobian(lambda x: T.ones(2), T.ones(2), strict=True)
    ),
    "strict at once": lambda T: (
        T.autograd.functional.jacobian(lambda x: x, T.ones(2), strict=True, vectorize=True)
    ),
    "forward with graph": lambda T: T.autograd.functional.jacobian(
        lambda x: x, T.ones(2), strategy="forward-mode", vectorize=True, create_graph=True
    ),
    "hessian of a vector": lambda T: T.autograd.functional.hessian(lambda x: x, T.ones(2)),
    "vjp without v": lambda T: T.autograd.functional.vjp(lambda x: x, T.ones(2)),
    "vjp of another shape": lambda T: T.autograd.functional.vjp(lambda x: x, T.ones(2), T.ones(3)),
    "func.grad of a vector": lambda T: T.func.grad(lambda x: x)(T.ones(2)),
    "func.grad of an integer": lambda T: T.func.grad(lambda x: x)(T.tensor(1)),
    "func.jvp of no tuple": lambda T: T.func.jvp(lambda x: x, T.ones(2), T.ones(2)),
    "randomness of jacfwd": lambda T: T.func.jacfwd(lambda x: x, randomness="x")(T.ones(2)),
    "randomness in vmap": lambda T: T.func.vmap(lambda x: x + T.rand(1))(T.ones(2)),
    "vmap of no tensor": lambda T: T.func.vmap(lambda x: x)(3),
    "vmap that returns a number": lambda T: T.func.vmap(lambda x: 3)(T.ones(2)),
    "vmap of two sizes": lambda T: T.func.vmap(lambda x, y: x)(T.ones(2), T.ones(3)),
    # -- checkpoints
    "other metadata": lambda T: checkpointed(
        T, two_runs(lambda x: x.exp(), lambda x: x[:1].exp())
    ).sum().backward(),
    "fewer saved": lambda T: checkpointed(
        T, two_runs(lambda x: x.exp().exp(), lambda x: x.exp())
    ).sum().backward(),
    # -- gradcheck
    "jacobian mismatch": lambda T: GC(T, function_of(T, lambda ctx, x: x * x).apply),
    "forward mismatch": lambda T: GC(
        T, function_of(T, jvp=lambda ctx, t: t * 2).apply, check_forward_ad=True
    ),
    # -- shapes
    "expanded": lambda T: T.ones(2, 3).expand(2, 2, 5),
    "expanded to fewer axes": lambda T: T.ones(2, 3).expand(3),
    "expanded by -1": lambda T: T.ones(2).expand(-1, 2),
    "viewed as 0 elements": lambda T: T.zeros(0).view(-1, 0),
    "viewed across strides": lambda T: T.ones(4, 4, dtype=T.float64).t().view(T.int32),
    "viewed in parts": lambda T: T.ones(4, 3).view(T.int64),
    "broadcast of a negative length": lambda T: T.broadcast_shapes((1, -12)),
    "unfolded to nothing": lambda T: T.ones(7).unfold(0, -1, 1),
    "split at numbers": lambda T: T.tensor_split(T.ones(4), T.tensor(1.1)),
    "split at a matrix": lambda T: T.tensor_split(T.ones(4), T.tensor([[1]])),
    "too many indices": lambda T: T.ones(2)[0, 0],
    "beyond an axis": lambda T: T.zeros(2, 5, 10)[0, 5],
    "beyond an empty axis": lambda T: T.zeros(10, 0)[:, T.tensor([0])],
    "a number at an index": lambda T: T.tensor(10)[0],
    "a slice of words": lambda T: T.ones(3)["0":"1"],
    "a mask of another shape": lambda T: T.ones(5, 4, 3)[T.tensor([True])],
    "a vector of small integers": lambda T: T.ones(2)[T.tensor([1], dtype=T.int16)],
    # -- other functions
    "a stride of 0": lambda T: T.nn.functional.max_pool2d(T.ones(1, 1, 4, 4), 2, stride=0),
    "one stride of 0": lambda T: T.nn.functional.max_pool1d(T.ones(1, 1, 4), 2, stride=0),
    "a transform of a number": lambda T: T.fft.fftn(T.tensor(1.0), dim=(0,)),
}  # fmt: skip


def phrase(text):
    """The longest part of the first sentence of PyTorch's message that holds no detail."""
    sentence = re.split(r"[.!]\s", re.sub(r"^\S+:", "", text))[0]
    details = r"[.:;,\d\[(]|\b(?:got|but|float|double|long|half|int)\b"
    return max(re.split(details, plain(sentence)), key=len).strip()


def plain(text):
    return re.sub(r"\s+", " ", re.sub(r"(torch|asyncgrad)\S*", "(", text)).lower()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_class_and_the_phrase_are_pytorchs(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as theirs:  # noqa: PT011  it says itself which
            call(torch)
        with pytest.raises(Exception) as ours:  # noqa: PT011
            call(ag)
    assert type(theirs.value).__name__ in [kind.__name__ for kind in type(ours.value).__mro__]
    assert phrase(str(theirs.value)) in plain(str(ours.value))


#: What helps, in the errors of some calls.
REMEDIES = {
    "F.cross_entropy(ones(2, 3), ones(2, 3), ignore_index=1)": "not to count a weight of 0",
    "F.cross_entropy(ones(2, 3), ones(2, 3).long())": "without the axis of classes.",
    "F.nll_loss(ones(2, 3), ones(2))": "Convert it with .to(asyncgrad.int64).",
    "F.hardtanh(ones(2, dtype=uint8))": "Convert it with .to().",
    "F.scaled_dot_product_attention(*[ones(2, 2)] * 4, is_causal=True)": "Combine the two masks",
    "norm(ones(2, 2, 2), 'nuc')": "needs dim=, the two axes of its matrices",
    "cat([tensor(1.0)])": "Use stack().",
    "t(ones(2, 2, 2))": "Use .mT or permute().",
    "diagonal(ones(2, 2), 0, 1, 1)": "Name two different axes.",
    "logsumexp(ones(2), None)": "Name the axes.",
    "matmul(tensor(1.0), ones(2))": "Multiply by a number with *.",
    "ones(2).masked_fill(ones(2) > 0, ones(2))": "Reduce it or use where().",
    "ones(2).masked_fill(ones(2), 1)": "Compare it with something.",
    "mean(tensor([1]))": "Convert it first, or pass dtype=.",
    "lu_unpack(ones(2, 2), tensor([0, 2]).int())": "pass the result of lu_factor?",
    "fft.fft(tensor(1.0))": "Give it one with unsqueeze().",
    "F.one_hot(tensor([]).long())": "Pass num_classes",
}


@pytest.mark.parametrize("call", REMEDIES)
def test_errors_say_what_helps(call):
    with pytest.raises(Exception, match=re.escape(REMEDIES[call])):
        evaluated(call, ag)
