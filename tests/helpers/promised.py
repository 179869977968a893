"""The functions that are promised, in PyTorch's spelling, by group."""

from __future__ import annotations

MUST: dict[str, tuple[str, ...]] = {
    "unary": (
        "neg", "positive", "abs", "sign", "exp", "exp2", "expm1", "log", "log2", "log10",
        "log1p", "sqrt", "rsqrt", "square", "reciprocal", "sin", "cos", "tan", "asin", "acos",
        "atan", "sinh", "cosh", "tanh", "sigmoid", "erf", "floor", "ceil", "round", "trunc",
        "clamp", "isnan", "isinf", "isfinite", "logical_not",
    ),
    "binary": (
        "add", "sub", "mul", "div", "pow", "maximum", "minimum", "fmod", "remainder",
        "floor_divide", "atan2", "where", "masked_fill", "eq", "ne", "lt", "le", "gt", "ge",
        "logical_and", "logical_or", "logical_xor", "__radd__", "__rsub__", "__rmul__",
        "__rdiv__", "__rpow__", "__rmatmul__",
    ),
    "reduction": (
        "sum", "mean", "var", "std", "prod", "amax", "amin", "max", "min", "argmax", "argmin",
        "all", "any", "logsumexp", "norm", "linalg.vector_norm", "cumsum",
    ),
    "shape": (
        "reshape", "view", "flatten", "ravel", "unflatten", "squeeze", "unsqueeze", "transpose",
        "permute", "t", "T", "mT", "movedim", "expand", "broadcast_to", "cat", "stack", "split",
        "chunk", "unbind", "clone", "contiguous", "flip", "roll", "tile", "repeat", "tril",
        "triu", "diagonal", "diag", "narrow", "select", "to", "float", "double",
        "nn.functional.pad",
    ),
    "index": (
        "__getitem__", "index_select", "gather", "take_along_dim", "index_put", "index_add",
        "scatter", "scatter_add", "masked_select", "nonzero", "nn.functional.embedding",
        "nn.functional.one_hot",
    ),
    "matmul_conv_pool": (
        "matmul", "mm", "bmm", "mv", "dot", "inner", "outer", "einsum", "tensordot", "addmm",
        "nn.functional.linear", "nn.functional.conv1d", "nn.functional.conv2d",
        "nn.functional.max_pool2d", "nn.functional.avg_pool2d",
        "nn.functional.scaled_dot_product_attention",
    ),
    "activation": (
        "nn.functional.relu", "nn.functional.leaky_relu", "nn.functional.elu",
        "nn.functional.gelu", "nn.functional.silu", "nn.functional.softplus",
        "nn.functional.logsigmoid", "softmax", "log_softmax",
    ),
    "normalisation": (
        "nn.functional.layer_norm", "nn.functional.batch_norm", "nn.functional.rms_norm",
        "nn.functional.dropout",
    ),
    "loss": (
        "nn.functional.mse_loss", "nn.functional.l1_loss", "nn.functional.smooth_l1_loss",
        "nn.functional.huber_loss", "nn.functional.cross_entropy", "nn.functional.nll_loss",
        "nn.functional.binary_cross_entropy", "nn.functional.binary_cross_entropy_with_logits",
        "nn.functional.kl_div", "nn.functional.cosine_similarity",
    ),
    "sort": (
        "sort", "argsort", "topk",
    ),
    "random": (
        "bernoulli", "normal", "uniform", "randint", "randn", "rand_like", "randn_like",
    ),
    "creation": (
        "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like",
        "arange", "linspace", "eye",
    ),
    "not_in_op_db": (
        "tensor", "as_tensor", "from_numpy", "asarray", "rand", "randperm", "__setitem__",
        "iadd", "isub", "imul", "itruediv", "ipow", "detach", "requires_grad_", "item",
        "tolist", "numpy",
    ),
}  # fmt: skip
