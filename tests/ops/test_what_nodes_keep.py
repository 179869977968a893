"""What nodes keep, seen from outside, over PyTorch's samples of its functions.

A node that has kept something can't run twice, and whoever changes in place what it has kept is
told. That is compared for every function that both libraries have. Keeping less than PyTorch is
fine as long as the gradient is right; keeping other things is said below, with the reason.
"""

import warnings

import numpy as np
import oracle
import pytest
from recorded_calls import DIFFERENTIABLE

import asyncgrad as ag

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.torch

#: Functions that are not promised, and are compared all the same.
OTHERS = """
    acosh clamp_max clamp_min addmv addbmm baddbmm vdot addr addcmul addcdiv asinh atanh
    broadcast_tensors block_diag unsafe_chunk conj conj_physical resolve_conj resolve_neg
    view_as_real view_as_complex complex copysign cumprod deg2rad diff true_divide expand_as
    fmax fmin frac fliplr flipud imag logaddexp logaddexp2 masked_scatter var_mean std_mean
    meshgrid nn.functional.softmin nn.functional.normalize aminmax
    nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
    nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d
    nn.functional.avg_pool1d nn.functional.conv_transpose1d nn.functional.conv_transpose2d
    nn.functional.conv_transpose3d nn.functional.conv3d nn.functional.group_norm
    nn.functional.instance_norm nn.functional.local_response_norm nn.functional.hardswish
    nn.functional.unfold nn.functional.interpolate nn.functional.upsample_bilinear
    nn.functional.soft_margin_loss nn.functional.upsample_nearest
    nn.functional.margin_ranking_loss nn.functional.multi_margin_loss
    nn.functional.multilabel_margin_loss nn.functional.multilabel_soft_margin_loss
    nn.functional.max_pool1d nn.functional.bilinear nn.functional.glu nn.functional.prelu
    nn.functional.celu nn.functional.selu nn.functional.hardsigmoid nn.functional.mish
    nn.functional.softsign nn.functional.tanhshrink nn.functional.threshold
    nn.functional.triplet_margin_loss nextafter nn.functional.softshrink
    nn.functional.hardshrink nn.functional.hardtanh nn.functional.relu6 dist float_power
    rad2deg real rot90 sinc sgn unsafe_split split_with_sizes __rmod__ rsub select_scatter
    slice_scatter tensor_split hsplit vsplit dsplit nan_to_num lerp angle polar reshape_as
    view_as atleast_1d atleast_2d atleast_3d column_stack index_fill index_copy take bfloat16
    half cdouble cfloat normal bernoulli hstack hypot vstack dstack fill xlogy zero_ H mH
    digamma erfc erfinv lgamma logit nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.alpha_dropout nn.functional.feature_alpha_dropout
    nn.functional.multi_head_attention_forward nanmean nansum
    nn.functional.cosine_embedding_loss nn.functional.gaussian_nll_loss
    nn.functional.hinge_embedding_loss nn.functional.poisson_nll_loss repeat_interleave
    nn.functional.pairwise_distance nn.functional.pixel_shuffle nn.functional.pixel_unshuffle
    nn.functional.channel_shuffle logcumsumexp scatter_reduce index_reduce put cdist
    nn.functional.pdist special.entr special.ndtri special.log_ndtr special.erfcx i0 special.i0e
    special.i1 special.i1e special.xlog1py mvlgamma linalg.lu linalg.lu_factor linalg.lu_solve
    matrix_exp nn.functional.grid_sample nn.functional.max_pool3d nn.functional.avg_pool3d
    nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool3d nn.functional.max_unpool1d
    nn.functional.max_unpool2d nn.functional.rrelu
""".split()  # noqa: SIM905  150 lines less
NAMES = [*DIFFERENTIABLE, *[pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]]

#: Functions that can run a second time where PyTorch's can't, with the reason.
RUNS_AGAIN = {
    "scatter": "without axes it is a copy",
    "scatter_add": "without axes it is a sum",
    "index_copy": "without axes it is a copy",
    "index_fill": "without axes it is a copy",
}
#: And that can't where PyTorch's can: they are made of functions that keep what is constant.
RUNS_ONCE = {
    "select_scatter": "a change in place of a copy",
    "slice_scatter": "a change in place of a copy",
    "lerp": "a product", "repeat_interleave": "picks by index",
    "nn.functional.interpolate": "products with weights",
    "nn.functional.upsample_bilinear": "products with weights",
}  # fmt: skip
_FUSED = "one node keeps the operands, where PyTorch's several keep what lies between"
#: Functions that refuse a changed operand or result where PyTorch does not.
KEEPS_OTHERS = {
    "nn.functional.l1_loss": _FUSED,
    "nn.functional.smooth_l1_loss": _FUSED,
    "nn.functional.kl_div": _FUSED,
    "nn.functional.cross_entropy": _FUSED,
    "nn.functional.scaled_dot_product_attention": "as PyTorch's fused kernels do",
    "polar": _FUSED,
    "norm": "the nuclear norm keeps its operand, and not the parts it decomposes it into",
    "matmul": "PyTorch copies operands of three axes to multiply them by vectors",
    "__rmatmul__": "as `matmul`",
    "__rdiv__": "PyTorch keeps the reciprocal, which then must not change",
    "take_along_dim": "PyTorch converts the index",
    "nn.functional.conv2d": "PyTorch copies the input for a frame that is not even",
    "nn.functional.conv3d": "PyTorch copies the input for a frame that is not even",
    "erfinv": "keeps the result, which is cheaper",
}


#: Nodes that are called otherwise, with the reason.
OTHER_NAMES = {
    **dict.fromkeys(
        ("matmul", "__rmatmul__", "inner", "einsum", "tensordot", "nn.functional.linear",
         "nn.functional.bilinear", "nn.functional.scaled_dot_product_attention"),
        "one product, where PyTorch reshapes the operands of a smaller one and its result",
    ),
    **dict.fromkeys(
        ("scatter", "scatter_add", "index_add", "index_fill", "index_copy"),
        "without axes it is a copy or a sum; in PyTorch, too, but under another name",
    ),
    **dict.fromkeys(
        ("diag", "roll", "atleast_2d", "atleast_3d", "take", "block_diag", "rot90", "diff",
         "masked_scatter", "select_scatter", "slice_scatter", "to", "double"),
        "made of functions that move elements, the last of which is seen",
    ),
    **dict.fromkeys(
        ("unsafe_split", "unsafe_chunk", "split", "split_with_sizes"),
        "one part is a slice",
    ),
    **dict.fromkeys(
        ("__rsub__", "__rdiv__"), "no operator calls it with two tensors"
    ),
    **dict.fromkeys(
        ("nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.interpolate",
         "nn.functional.adaptive_max_pool1d", "nn.functional.adaptive_max_pool2d",
         "nn.functional.margin_ranking_loss", "nn.functional.triplet_margin_loss",
         "nn.functional.multi_head_attention_forward", "nn.functional.pairwise_distance",
         "nn.functional.channel_shuffle", "repeat_interleave"),
        "composed in another way",
    ),
    "round": "with no decimals it is `round`",
    "sort": "PyTorch has two for the same",
    "copysign": "PyTorch has two for the same",
    "normal": "PyTorch has several for the same",
    "norm": "the nuclear norm is one function, and not the sum of singular values",
    "fill": "a copy of the number", "zero_": "a copy of the number",
    "nn.functional.rms_norm": "fused, under the name of PyTorch's fused one",
    "nn.functional.cross_entropy": "with probabilities as targets the sum is divided otherwise",
    "nn.functional.cosine_similarity": "a view where there are no axes",
}  # fmt: skip


class _Call:
    """A function, and one sample of its arguments in both libraries."""

    def __init__(self, theirs, ours, sample):
        self.functions = (theirs, ours)
        twins = oracle.Twins(copy=True)
        self.arguments = twins.of([sample.input, *sample.args])
        self.keywords = twins.of(sample.kwargs)
        self.operands = list(twins._seen.values())

    def made(self, side):
        """The operands, copied within the graph, and the results."""
        T = (torch, ag)[side]
        T.manual_seed(0)
        copies = {}
        for pair in self.operands:
            copies[id(pair[side])] = pair[side].clone()
        arguments = _replaced(self.arguments[side], copies)
        results = self.functions[side](*arguments, **_replaced(self.keywords[side], copies))
        return list(copies.values()), oracle.tensors_of(results, T.Tensor)


def _replaced(value, copies):
    if id(value) in copies:
        return copies[id(value)]
    if isinstance(value, (list, tuple)):
        return type(value)(_replaced(part, copies) for part in value)
    if isinstance(value, dict):
        return {key: _replaced(part, copies) for key, part in value.items()}
    return value


def _gradients(T, operands, results):
    """By all operands, or None if a change of what was kept is refused."""
    roots = [result for result in results if result.requires_grad]
    by = [operand for operand in operands if operand.requires_grad]
    try:
        return T.autograd.grad(roots, by, [T.ones_like(r) for r in roots], allow_unused=True)
    except RuntimeError as error:
        # Of a saved tensor, or of the base of several views.
        if "inplace" in str(error):
            return None
        raise


def _calls(name):
    """Some calls of a function with results that have a gradient."""
    ours = oracle.resolve(name)
    for op in oracle.infos(name):
        if torch.float64 in op.supported_backward_dtypes("cpu"):
            for sample in oracle.samples(op, "float64", requires_grad=True, limit=4):
                call = _Call(op.op, ours, sample)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    _, results = call.made(0)
                    if any(result.requires_grad for result in results):
                        yield call


def _again(T, operands, results):
    try:
        _gradients(T, operands, results)
    except RuntimeError as error:
        return "refused" if "second time" in str(error) else str(error)
    return "computed"


@pytest.mark.parametrize("name", NAMES)
def test_a_second_pass_is_refused_where_pytorch_refuses_it(name):
    for call in _calls(name):
        outcomes = []
        for side, T in enumerate((torch, ag)):
            operands, results = call.made(side)
            _gradients(T, operands, results)
            outcomes.append(_again(T, operands, results))
        theirs, ours = outcomes
        if theirs == "refused":
            assert ours == "refused" or name in RUNS_AGAIN
        else:
            assert ours == "computed" or name in RUNS_ONCE


@pytest.mark.parametrize("name", NAMES)
def test_changes_in_place_are_refused_where_pytorch_refuses_them_or_do_no_harm(name):
    for call in _calls(name):
        operands, results = call.made(0)
        expected = _gradients(ag, *call.made(1))
        for place in range(len(operands) + min(2, len(results))):
            found = []
            for side, T in enumerate((torch, ag)):
                operands, results = call.made(side)
                with T.no_grad():
                    changed = [*operands, *results][place]
                    if changed.is_inference() or not changed.numel():
                        break
                    changed.zero_()
                found.append(_gradients(T, operands, results))
            if len(found) < 2:
                continue
            theirs, ours = found
            if ours is None:
                assert theirs is None or name in KEEPS_OTHERS
            else:
                for gradient, unchanged in zip(ours, expected, strict=True):
                    assert (gradient is None) == (unchanged is None)
                    if gradient is not None:
                        np.testing.assert_array_equal(gradient.numpy(), unchanged.numpy())


def test_running_products_may_change_in_place():
    x = ag.tensor([2.0, 3.0, 4.0], requires_grad=True)
    y = x.cumprod(0)
    y.detach().zero_()
    y.sum().backward()
    assert x.grad.tolist() == [16.0, 10.0, 6.0]


def test_pooled_maxima_may_change_in_place():
    """The way it is done after every convolution: pool, then `relu_`."""
    x = ag.tensor([[[[1.0, -2.0], [-3.0, -4.0]]]], requires_grad=True)
    y = ag.nn.functional.max_pool2d(x * 2, 2)
    ag.nn.functional.relu_(y.sub_(1)).sum().backward()
    assert x.grad.tolist() == [[[[2.0, 0.0], [0.0, 0.0]]]]


def test_pooled_maxima_that_changed_have_second_derivatives():
    x = ag.tensor([[[[1.0, 2.0], [3.0, 4.0]]]], requires_grad=True)
    y = ag.nn.functional.max_pool2d(x * x, 2)
    y.pow_(2)
    (g,) = ag.grad(y.sum(), x, create_graph=True)
    g.sum().backward()
    assert x.grad.tolist() == [[[[0.0, 0.0], [0.0, 12 * 4.0**2]]]]


def test_pooled_maxima_of_changed_input_are_refused():
    x = ag.ones(1, 1, 2, 2, requires_grad=True)
    z = x * 1
    y = ag.nn.functional.max_pool2d(z, 2)
    y.mul_(2)
    z.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("name", NAMES)
def test_nodes_are_called_as_pytorchs(name):
    for call in _calls(name):
        theirs, ours = [
            [result.grad_fn and result.grad_fn.name() for result in call.made(side)[1]]
            for side in (0, 1)
        ]
        theirs = [called and called.removeprefix("torch::autograd::") for called in theirs]
        assert ours == theirs or name in OTHER_NAMES


@pytest.mark.parametrize("name", NAMES)
def test_what_is_saved_can_be_packed_where_pytorchs_can(name):
    """Of what both nodes have by the same name."""
    for call in _calls(name):
        for theirs, ours in zip(*[call.made(side)[1] for side in (0, 1)], strict=True):
            theirs, ours = theirs.grad_fn, ours.grad_fn
            if theirs is None or ours is None or theirs.name() != ours.name():
                continue
            for raw in dir(theirs):
                if raw.startswith("_raw_saved_") and hasattr(ours, raw.removeprefix("_raw")):
                    kept = getattr(ours, raw)
                    for one in kept if isinstance(kept, tuple) else (kept,):
                        assert callable(one.register_hooks)


def test_a_base_whose_view_was_changed_takes_one_pass():
    """PyTorch's node of such a base gives up the change's own node."""
    for change in (lambda y: y[:1].add_(1), lambda y: y.__setitem__(0, 5.0)):
        for T in (torch, ag):
            x = T.ones(3, requires_grad=True)
            y = x.clone()
            change(y)
            y.backward(T.ones(3), retain_graph=True)
            y.backward(T.ones(3))
            with pytest.raises(RuntimeError, match="second time"):
                y.backward(T.ones(3))


def test_indices_are_gone_when_the_node_has_run():
    for T in (torch, ag):
        values = T.tensor([3.0, 1.0], requires_grad=True).sort().values
        node = values.grad_fn
        assert node._saved_indices.tolist() == [1, 0]
        values.sum().backward()
        with pytest.raises(RuntimeError, match=r"second time|freed"):
            node._saved_indices  # noqa: B018  reading raises
