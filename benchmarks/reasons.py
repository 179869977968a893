"""Why some functions take longer than PyTorch's by more than is allowed."""

_CALLS = "several calls of NumPy, each of about a microsecond, where PyTorch makes one"
_NEW = "no gradient: a call of NumPy and a tensor of Python's against one call in C++"
_DRAWN = "NumPy's generator, under a lock that lets threads share it; bounds are checked first"
_PARTS = "a tensor, a view and an edge for each result, in Python"
_PUT = "a copy changed in place: both steps are checked and recorded in Python"
_ROOT = "the gradient is copied: PyTorch lets .grad share the memory of what it was given"
_ONE_PASS = "NumPy goes through memory once for every step, PyTorch once for all"
_ZIGGURAT = "NumPy's generator draws one number at a time, PyTorch eight"
_PLACES = "NumPy looks up one element at a time, and adds what comes back in the same way"

#: Why functions take more than 1.5 times PyTorch's time on 16 elements.
AT_TINY: dict[str, str] = {
    **dict.fromkeys(
        (
            "nn.functional.max_pool2d", "nn.functional.max_pool2d (3, 1)",
            "nn.functional.avg_pool2d", "nn.functional.conv1d", "nn.functional.conv2d",
            "nn.functional.conv2d (bias)", "nn.functional.batch_norm",
            "nn.functional.batch_norm (moments)", "nn.functional.layer_norm",
            "nn.functional.scaled_dot_product_attention",
            "nn.functional.scaled_dot_product_attention (causal)", "nn.functional.softplus",
            "nn.functional.cross_entropy", "nn.functional.cross_entropy (weights)",
            "nn.functional.nll_loss", "nn.functional.binary_cross_entropy",
            "nn.functional.smooth_l1_loss", "nn.functional.huber_loss",
            "nn.functional.mse_loss", "nn.functional.embedding (scaled)",
            "nn.functional.pad (reflect)", "nn.functional.gelu (tanh)", "polar", "roll", "softmax",
            "softmax (columns)", "log_softmax", "gather", "take_along_dim", "topk", "bmm",
            "norm (nuclear)", "complex",
        ),
        _CALLS,
    ),
    **dict.fromkeys(
        (
            "asarray", "as_tensor", "tensor", "item", "full", "full_like", "linspace", "arange",
            "zeros_like", "ones_like", "empty_like", "ones", "nonzero", "isnan", "logical_not",
            "any", "any (columns)", "all", "all (rows)", "argmax", "argmax (rows)", "argmin",
            "argmin (columns)", "requires_grad_", "empty", "eye", "zeros",
            "nn.functional.one_hot",
        ),
        _NEW,
    ),
    **dict.fromkeys(
        (
            "uniform", "binomial", "poisson", "bernoulli", "randint", "normal", "normal (tensors)",
            "randn", "randn_like", "rand", "rand_like", "randperm", "nn.functional.dropout",
        ),
        _DRAWN,
    ),
    **dict.fromkeys(("split", "chunk", "unbind"), _PARTS),
    **dict.fromkeys(
        (
            "scatter", "scatter (number)", "scatter (multiply)", "scatter_add", "index_add",
            "index_put", "index_put (add)", "mul_ (view)", "__setitem__", "imul", "itruediv",
            "ipow",
        ),
        _PUT,
    ),
    **dict.fromkeys(
        ("stack", "cat", "cat (columns)"),
        "a node with a slice for each part, in Python",
    ),
}  # fmt: skip
#: Why functions take more than twice PyTorch's time on 4 M elements.
AT_LARGE: dict[str, str] = {
    **dict.fromkeys(
        ("reshape", "view", "flatten", "ravel", "unflatten", "unsqueeze"),
        _ROOT,
    ),
    **dict.fromkeys(
        (
            "nn.functional.layer_norm", "nn.functional.gelu", "nn.functional.silu",
            "nn.functional.l1_loss", "nn.functional.batch_norm (moments)",
            "nn.functional.batch_norm", "nn.functional.softplus", "linspace",
            "div (trunc)", "softmax", "stack", "cat", "round (decimals)",
        ),
        _ONE_PASS,
    ),
    **dict.fromkeys(
        (
            "sinh", "cosh", "tan", "acos", "asin", "atan", "atan2", "log1p", "expm1", "log2",
            "log10", "nn.functional.elu",
        ),
        "NumPy calls the C library for each element on processors without AVX-512",
    ),
    "erf": "SciPy's function takes one element at a time, PyTorch's is vectorised",
    **dict.fromkeys(
        (
            "gather", "scatter_add", "scatter", "index_add", "index_put (add)", "take_along_dim",
        ),
        _PLACES,
    ),
    **dict.fromkeys(("randn", "randn_like", "normal", "normal (tensors)"), _ZIGGURAT),
    "cumsum": "NumPy adds one element at a time, and for the gradient does so from the other end",
    "sgn": "PyTorch's gradient is a tensor of zeros without memory",
    "norm (nuclear)": "NumPy's singular values are computed with OpenBLAS, PyTorch's with MKL",
    **dict.fromkeys(
        ("nn.functional.conv2d", "nn.functional.conv2d (bias)", "nn.functional.conv1d"),
        "columns are made of the windows for a product of matrices; PyTorch's oneDNN makes none",
    ),
    **dict.fromkeys(
        ("asarray", "as_tensor", "item", "requires_grad_", "empty", "empty_like", "from_numpy"),
        "nothing is computed: the time of a call",
    ),
    **dict.fromkeys(
        ("logical_not", "logical_or", "logical_and", "logical_xor"),
        "NumPy tests floating numbers one at a time",
    ),
}  # fmt: skip
