"""PyTorch as the oracle: its own samples of a function's arguments, through both libraries.

    oracle.check("cumsum")           values, dtypes, shapes, structure, first and second derivatives
    oracle.check_forward("cumsum")   tangents, in forward mode
    oracle.check_in_place("cumsum")  the same of `cumsum_`, if PyTorch has it
    oracle.check_errors("cumsum")    what PyTorch refuses is refused, with the same class

Names are those of PyTorch's `op_db` ("add", "nn.functional.pad", "linalg.vector_norm"). Ours is
the function of that path in `asyncgrad`, or else the method or property of `Tensor`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch_samples

import asyncgrad as ag
from asyncgrad.autograd import forward_ad

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

with torch_samples.importing():
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo import core

    # The first dual tensor makes PyTorch compile decompositions, and warn: let that happen here.
    with torch.autograd.forward_ad.dual_level():
        torch.autograd.forward_ad.make_dual(torch.ones(1), torch.ones(1))


def _seed_of_cpu(seed: int = common_utils.SEED) -> None:
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


# Without these, samples would take most of their time for what they do not need: PyTorch searches
# the stack, with all sources, for a test case of its own in which to note the sample, and formats
# the stack for each kind of device, to seed such devices later.
common_utils.extract_test_fn = core.extract_test_fn = lambda: None
common_utils.set_rng_seed = _seed_of_cpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: A function is checked with those of these dtypes that PyTorch accepts.
DTYPES = ("float64", "complex128", "float32", "complex64", "int64", "bool")
#: The allowed errors by dtype, relative to the greatest element; other dtypes must be equal.
TOLERANCES = {"float64": 1e-9, "complex128": 1e-9, "float32": 2e-5, "complex64": 2e-5}
#: Arguments about memory, which are left out with these values: they change no result.
_MEMORY = {
    "memory_format": (torch.contiguous_format, torch.preserve_format),
    "layout": (torch.strided, None),
    "pin_memory": (False, None),
    "non_blocking": (False, True),
}


def infos(name: str, variant: str | None = None) -> list[Any]:
    """PyTorch's descriptions of a function, one for each variant of its arguments."""
    found = [op for op in op_db if op.name == name and variant in {None, op.variant_test_name}]
    assert found, f"PyTorch's op_db has no {name!r} {variant or ''}"
    return found


#: Functions whose arguments PyTorch's samples have in another order.
_REORDERED: dict[str, Callable[..., Any]] = {
    "where": lambda x, condition, other: ag.where(condition, x, other),
    "einsum": lambda tensors, equation: ag.einsum(equation, tensors),
    "nn.functional.embedding": lambda weight, input, **more: ag.nn.functional.embedding(
        input, weight, **more
    ),
    "special.polygamma": lambda x, n: ag.special.polygamma(n, x),
}


def resolve(name: str) -> Callable[..., Any]:
    """Our function of a name, for PyTorch's samples: the package's, or what `Tensor` has."""
    if name in _REORDERED:
        return _REORDERED[name]
    target: Any = ag
    for part in name.split("."):
        target = getattr(target, part, None)
    if not callable(target):
        target = vars(ag.Tensor).get(name)
        if isinstance(target, property):
            target = target.fget
    assert callable(target), f"asyncgrad has no {name}"
    return target


def dtype_name(dtype: Any) -> str:
    """A dtype of either library as a word."""
    return str(dtype).rpartition(".")[2]


def array_of(tensor: Any) -> np.ndarray[Any, Any]:
    """The values of a tensor of either library."""
    if isinstance(tensor, ag.Tensor):
        return tensor.detach().numpy()
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    # Some of PyTorch's zeros have no memory, so NumPy can have them only by force.
    return tensor.numpy(force=True)


def _backwards(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A view with the same values, with negative strides and with gaps between the elements."""
    if not array.ndim:
        return array
    spread = np.zeros([2 * n for n in array.shape], array.dtype)
    steps = (slice(None, None, -2),) * array.ndim
    spread[steps] = array
    return spread[steps]


class Twins:
    """Arguments for PyTorch and for us with the same values, tensor by tensor.

    Args:
        awkward: give ours negative strides.
        copy: share no memory.
    """

    def __init__(self, *, awkward: bool = False, copy: bool = False) -> None:
        self.awkward = awkward
        self.copy = copy
        #: The leaves that require grad.
        self.leaves: list[tuple[Any, Any]] = []
        self._seen: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any) -> tuple[Any, Any]:
        """The pair for one argument, whatever it is."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self._seen:
                self._seen[id(value)] = self._tensors(value)
            return self._seen[id(value)]
        if isinstance(value, dict):
            pairs = {
                key: self.of(part)
                for key, part in value.items()
                if key not in _MEMORY or part not in _MEMORY[key]
            }
            return {k: p[0] for k, p in pairs.items()}, {k: p[1] for k, p in pairs.items()}
        if isinstance(value, (list, tuple)):
            pairs = [self.of(part) for part in value]
            kind = list if isinstance(value, list) else tuple
            return kind(p[0] for p in pairs), kind(p[1] for p in pairs)
        if isinstance(value, torch.dtype):
            return value, getattr(ag, dtype_name(value))
        if isinstance(value, torch.device):
            return value, str(value)
        return value, value

    def _tensors(self, value: Any) -> tuple[Any, Any]:
        theirs = value.detach()
        if self.copy:
            theirs = theirs.clone()
        array = array_of(value)
        if self.awkward:
            array = _backwards(array)
        ours = ag.from_numpy(array.copy() if self.copy else array)
        if value.requires_grad:
            theirs.requires_grad_()
            ours.requires_grad_()
            self.leaves.append((theirs, ours))
        return theirs, ours


#: The samples made so far: many are expensive, and several tests of a function use them.
_samples: dict[tuple[str, str, str, bool], list[Any]] = {}


def _sample_of(op: Any, dtype: str, *, requires_grad: bool) -> list[Any]:
    key = (op.name, op.variant_test_name, dtype, requires_grad)
    if key not in _samples:
        _samples[key] = _made(op, dtype, requires_grad)
    return _samples[key]


_CHANNELS_LAST = {torch.channels_last, torch.channels_last_3d}


def _made(op: Any, dtype: str, requires_grad: bool, count: int | None = None) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _seed_of_cpu(0)
        samples = op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=requires_grad)
        # There is no layout but rows.
        in_rows = (s for s in samples if s.kwargs.get("memory_format") not in _CHANNELS_LAST)
        return list(itertools.islice(in_rows, count))


def first_samples(op: Any, dtype: str, count: int, *, requires_grad: bool) -> list[Any]:
    """PyTorch's first samples, the last of them the largest of a dozen; `samples` makes all.

    The first ones often have no axes or one element, which tell nothing of axes and examples.
    """
    dozen = _made(op, dtype, requires_grad, 12)
    return dozen[: count - 1] + sorted(dozen[count - 1 :], key=_size, reverse=True)[:1]


def _size(sample: Any) -> int:
    return sum(x.numel() for x in tensors_of(sample.input, torch.Tensor))


def samples(
    op: Any,
    dtype: str,
    *,
    requires_grad: bool = False,
    limit: int = 24,
    skip: Mapping[str, Callable[[Any], bool]] | None = None,
) -> list[Any]:
    """PyTorch's samples for a dtype, at most `limit`, always the same, without those to skip.

    Args:
        skip: by the reason, which samples are left out.
    """
    found = _sample_of(op, dtype, requires_grad=requires_grad)
    kept = [s for s in found if not any(leave_out(s) for leave_out in (skip or {}).values())]
    assert kept or not found, f"{op.name}: every sample for {dtype} is skipped"
    if len(kept) > limit:
        places = sorted(random.Random(op.name).sample(range(len(kept)), limit))
        kept = [kept[place] for place in places]
    return kept


@contextlib.contextmanager
def _about(what: str, sample: Any) -> Iterator[None]:
    """Note in an error which sample raised it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"{what} of {sample}")
        raise


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def check(
    name: str,
    *,
    variant: str | None = None,
    dtypes: tuple[str, ...] = DTYPES,
    limit: int = 24,
    order: int = 2,
    skip: Mapping[str, Callable[[Any], bool]] | None = None,
    tolerance: float | None = None,
    awkward: bool = True,
) -> None:
    """Compare a function with PyTorch's over PyTorch's samples.

    Args:
        name: the function.
        variant: one variant only.
        dtypes: with these, as far as PyTorch takes them; derivatives where it has them.
        limit: samples of each variant and dtype.
        order: the highest derivative, 0 to 2.
        skip: by the reason, which samples are left out.
        tolerance: instead of `TOLERANCES`.
        awkward: once more with negative strides; not for what depends on the strides.
    """
    ours = resolve(name)
    checked = 0
    for op in infos(name, variant):
        forward = {dtype_name(dtype) for dtype in op.supported_dtypes("cpu")}
        backward = {dtype_name(dtype) for dtype in op.supported_backward_dtypes("cpu")}
        method = None
        if op.method_variant is not None:
            method = getattr(ag.Tensor, name, None)
            assert method is not None, f"Tensor has no method {name}"
        for dtype in dtypes:
            if dtype not in forward:
                continue
            derive = order if op.supports_autograd and dtype in backward else 0
            derive = min(derive, 2 if op.supports_gradgrad else 1)
            found = samples(op, dtype, requires_grad=derive > 0, limit=limit, skip=skip)
            for place, sample in enumerate(found):
                what = f"{name} [{op.variant_test_name}] for {dtype}, sample {place}"
                with _about(what, sample):
                    _compare_call(op.op, ours, sample, derive, tolerance)
                    if place < 3 and method is not None:
                        _compare_call(op.op, method, sample, 0, tolerance)
                    if awkward and place < 3 and dtype == "float64":
                        first = min(derive, 1)
                        _compare_call(op.op, ours, sample, first, tolerance, awkward=True)
                checked += 1
    assert checked, f"{name}: nothing was compared"


def _compare_call(
    theirs: Callable[..., Any],
    ours: Callable[..., Any],
    sample: Any,
    order: int,
    tolerance: float | None,
    *,
    awkward: bool = False,
) -> None:
    """One call of both, and the derivatives up to an order."""
    twins = Twins(awkward=awkward)
    pairs = twins.of([sample.input, *sample.args])
    keywords = twins.of(sample.kwargs)
    with _quiet():
        expected = sample.output_process_fn_grad(theirs(*pairs[0], **keywords[0]))
    found = sample.output_process_fn_grad(ours(*pairs[1], **keywords[1]))
    compare(expected, found, tolerance)
    if order:
        compare_derivatives(expected, found, twins.leaves, order, tolerance)


def _near(dtype: Any, tolerance: float | None) -> float:
    return TOLERANCES.get(dtype_name(dtype), 0.0) if tolerance is None else tolerance


def compare(expected: Any, found: Any, tolerance: float | None = None) -> None:
    """Raise unless two results have the same structure, dtypes, shapes and values."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(found, ag.Tensor), f"a tensor was expected, not {found!r}"
        assert found.dtype == getattr(ag, dtype_name(expected.dtype))
        assert found.shape == tuple(expected.shape)
        assert found._array.shape == found.shape
        assert found._array.dtype == found.dtype
        _compare_arrays(array_of(expected), array_of(found), _near(expected.dtype, tolerance))
    elif isinstance(expected, (list, tuple)):
        fields = getattr(type(expected), "__match_args__", ())
        if fields:
            assert type(found)._fields == fields
        else:
            assert isinstance(found, (list, tuple)), f"several results were expected, not {found!r}"
        assert len(found) == len(expected)
        for theirs, ours in zip(expected, found, strict=True):
            compare(theirs, ours, tolerance)
    elif isinstance(expected, torch.dtype):
        assert found == dtype_name(expected)
    else:
        assert type(found) is type(expected)
        assert found == expected or (found != found and expected != expected)


def _compare_arrays(expected: Any, found: Any, tolerance: float) -> None:
    """Raise unless the elements are alike, on the scale of the greatest finite one."""
    if expected.dtype.name == "bfloat16":
        expected, found = expected.astype(np.float32), found.astype(np.float32)
    if expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, expected)
        return
    finite = np.abs(expected[np.isfinite(expected)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


def tensors_of(result: Any, kind: type) -> list[Any]:
    """The tensors in a result, in order."""
    if isinstance(result, kind):
        return [result]
    if isinstance(result, (list, tuple)):
        return [tensor for part in result for tensor in tensors_of(part, kind)]
    return []


def _weights(tensors: list[Any], seed: int) -> list[tuple[Any, Any]]:
    """A random gradient for each tensor of PyTorch's, as leaves of both libraries."""
    generator = np.random.default_rng(seed)
    weights = []
    for tensor in tensors:
        array = generator.standard_normal(tuple(tensor.shape))
        if tensor.is_complex():
            array = array + 1j * generator.standard_normal(tuple(tensor.shape))
        array = np.asarray(array, dtype_name(tensor.dtype))
        # PyTorch does not accept bfloat16 arrays of NumPy.
        known = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
        theirs = torch.tensor(known, dtype=tensor.dtype, requires_grad=True)
        weights.append((theirs, ag.tensor(array, requires_grad=True)))
    return weights


def compare_derivatives(
    expected: Any,
    found: Any,
    leaves: list[tuple[Any, Any]],
    order: int,
    tolerance: float | None = None,
) -> None:
    """Raise unless results have the same derivatives by leaves that both were computed from.

    Args:
        expected: PyTorch's result.
        found: ours.
        leaves: pairs of leaves that require grad.
        order: 1 or 2.
        tolerance: instead of `TOLERANCES`.
    """
    outputs = list(
        zip(tensors_of(expected, torch.Tensor), tensors_of(found, ag.Tensor), strict=True)
    )
    for place, (theirs, ours) in enumerate(outputs):
        assert ours.requires_grad == theirs.requires_grad, f"requires_grad of output {place}"
    outputs = [pair for pair in outputs if pair[0].requires_grad]
    if not outputs:
        return
    weights = _weights([theirs for theirs, _ in outputs], 1)
    with _quiet():
        first = torch.autograd.grad(
            *_sides(0, outputs, leaves, weights), create_graph=order > 1, allow_unused=True
        )
    plain = ag.grad(*_sides(1, outputs, leaves, weights), retain_graph=True, allow_unused=True)
    _compare_gradients(first, plain, leaves, tolerance, "gradient")
    if order < 2:
        return
    recorded = ag.grad(*_sides(1, outputs, leaves, weights), create_graph=True, allow_unused=True)
    _compare_gradients(first, recorded, leaves, tolerance, "recorded gradient")
    further = [theirs for theirs in first if theirs is not None and theirs.requires_grad]
    if not further:
        return
    inputs = leaves + weights
    second_weights = _weights(_filled(torch, first, [theirs for theirs, _ in leaves]), 2)
    kept = [place for place, t in enumerate(first) if t is not None and t.requires_grad]
    with _quiet():
        second = torch.autograd.grad(
            [first[place] for place in kept],
            [theirs for theirs, _ in inputs],
            [second_weights[place][0] for place in kept],
            allow_unused=True,
        )
    ours_kept = [p for p, g in enumerate(recorded) if g is not None and g.requires_grad]
    second_ours = (None,) * len(inputs)
    if ours_kept:
        second_ours = ag.grad(
            [recorded[place] for place in ours_kept],
            [ours for _, ours in inputs],
            [second_weights[place][1].detach() for place in ours_kept],
            allow_unused=True,
        )
    _compare_gradients(second, second_ours, inputs, tolerance, "second derivative", 10)


def _filled(library: Any, gradients: Any, leaves: list[Any]) -> list[Any]:
    """A library's gradients with zeros in the place of None."""
    return [
        library.zeros_like(leaf) if gradient is None else gradient
        for gradient, leaf in zip(gradients, leaves, strict=True)
    ]


def _sides(side: int, *lists: list[tuple[Any, Any]]) -> list[list[Any]]:
    return [[pair[side] for pair in pairs] for pairs in lists]


def _compare_gradients(
    expected: Any,
    found: Any,
    leaves: list[tuple[Any, Any]],
    tolerance: float | None,
    what: str,
    factor: int = 1,
) -> None:
    """Raise unless gradients are alike; None and zeros are."""
    for place, (theirs, ours, leaf) in enumerate(zip(expected, found, leaves, strict=True)):
        if ours is not None:
            assert ours.dtype == leaf[1].dtype, f"dtype of {what} {place}"
            assert ours.shape == leaf[1].shape, f"shape of {what} {place}"
        shape, dtype = leaf[1].shape, leaf[1].dtype
        with _about(what, f"input {place}"):
            _compare_arrays(
                np.zeros(shape, dtype) if theirs is None else array_of(theirs),
                np.zeros(shape, dtype) if ours is None else array_of(ours),
                _near(dtype, tolerance) * factor,
            )


def as_in_pytorch(
    names: Sequence[str], *, small: Mapping[str, Any] | None = None, tangents: int = 0,
    in_place: bool = True, errors: bool = True, **options: Any,
) -> Callable[[str, str], None]:  # fmt: skip
    """The test that functions do with PyTorch's samples what PyTorch does.

    Args:
        names: the functions.
        small: the options with which values alone are compared again, in dtypes of few digits.
        tangents: how many samples of each variant and dtype have their tangents compared.
        in_place: compare the forms in place, too.
        errors: compare what PyTorch refuses, too.
        options: those of `check`.
    """
    near = {name: options[name] for name in {"skip", "tolerance"} & options.keys()}
    checks: dict[str, Callable[[str], Any]] = {
        "values": lambda name: check(name, **options),
        "small": lambda name: check(name, order=0, **(small or {})),
        "tangents": lambda name: check_forward(name, limit=tangents, **near),
        "in place": check_in_place,
        "errors": check_errors,
    }

    def is_there(kind: str, name: str) -> bool:
        found = infos(name)
        taken = {dtype_name(dtype) for op in found for dtype in op.supported_dtypes("cpu")}
        return {
            "values": True,
            "small": small is not None and not taken.isdisjoint(small["dtypes"]),
            "tangents": tangents > 0 and any(op.supports_forward_ad for op in found),
            # Of functions of layers, PyTorch's form in place is the option `inplace`.
            "in place": in_place
            and "." not in name
            and any(op.inplace_variant is not None for op in found),
            "errors": errors and has_errors(name),
        }[kind]

    @pytest.mark.parametrize(
        ("kind", "name"), [(k, n) for k in checks for n in names if is_there(k, n)]
    )
    def test(kind: str, name: str) -> None:
        compared = checks[kind](name)
        assert compared != 0 or kind == "errors", f"{name}: no {kind} were compared"

    return test


def check_forward(
    name: str,
    *,
    dtypes: tuple[str, ...] = ("float64", "complex128"),
    limit: int = 12,
    skip: Mapping[str, Callable[[Any], bool]] | None = None,
    tolerance: float | None = None,
    of_gradients: bool = False,
) -> int:
    """Compare a function's tangents with PyTorch's over PyTorch's samples.

    Each sample is run with a tangent for every input, and once more with one for the first alone.

    Args:
        name: the function.
        dtypes: with these, as far as PyTorch has derivatives for them.
        limit: samples of each variant and dtype.
        skip: by the reason, which samples are left out.
        tolerance: instead of `TOLERANCES`.
        of_gradients: compare the tangents of the gradients.

    Returns:
        How many samples there were: none where PyTorch has no forward mode.
    """
    ours = resolve(name)
    checked = 0
    for op in infos(name):
        backward = {dtype_name(dtype) for dtype in op.supported_backward_dtypes("cpu")}
        for dtype in dtypes:
            supported = op.supports_fwgrad_bwgrad if of_gradients else op.supports_forward_ad
            if dtype not in backward or not supported:
                continue
            found = samples(op, dtype, requires_grad=True, limit=limit, skip=skip)
            for place, sample in enumerate(found):
                what = f"{name} [{op.variant_test_name}] for {dtype}, sample {place}, forward mode"
                with _about(what, sample), contextlib.suppress(Unsupported):
                    _compare_tangents(op.op, ours, sample, None, tolerance, of_gradients)
                    _compare_tangents(op.op, ours, sample, 1, tolerance, of_gradients)
                    checked += 1
    return checked


class Unsupported(Exception):
    """PyTorch can't compute a derivative, so there is nothing to compare."""


def _compare_tangents(
    theirs: Any,
    ours: Any,
    sample: Any,
    some: int | None,
    tolerance: float | None,
    of_gradients: bool,
) -> None:
    """The tangents of one call's results or gradients, with tangents for some of the leaves."""
    twins = Twins(copy=True)
    pairs = twins.of([sample.input, *sample.args])
    keywords = twins.of(sample.kwargs)
    leaves = twins.leaves[:some]
    if not leaves:
        return
    tangents = _weights([theirs for theirs, _ in leaves], 3)
    results = []
    for side, (F, call) in enumerate(((torch.autograd.forward_ad, theirs), (forward_ad, ours))):
        with _quiet(), F.dual_level():
            duals = {
                id(leaf[side]): F.make_dual(
                    leaf[side] if of_gradients else leaf[side].detach(), tangent[side].detach()
                )
                for leaf, tangent in zip(leaves, tangents, strict=True)
            }
            args, kwargs = _replaced(duals, pairs[side]), _replaced(duals, keywords[side])
            try:
                result = sample.output_process_fn_grad(call(*args, **kwargs))
                out = tensors_of(result, (torch.Tensor, ag.Tensor)[side])
                if of_gradients:
                    out = _gradients(side, out, [leaf[side] for leaf in leaves])
            except RuntimeError as error:
                # Some of PyTorch's formulas have no tangents of gradients, or fail.
                if side == 0 and of_gradients:
                    raise Unsupported from error
                raise
            results.append([F.unpack_dual(x).tangent for x in out])
            shapes = [(x.shape, dtype_name(x.dtype)) for x in out]
    for place, (expected, found) in enumerate(zip(*results, strict=True)):
        shape, dtype = shapes[place]
        if found is not None:
            assert found.shape == shape, f"shape of tangent {place}"
            assert dtype_name(found.dtype) == dtype, f"dtype of tangent {place}"
        with _about("tangent", f"output {place}"):
            _compare_arrays(
                np.zeros(shape, dtype) if expected is None else array_of(expected),
                np.zeros(shape, dtype) if found is None else array_of(found),
                _near(dtype, tolerance),
            )


def _gradients(side: int, results: list[Any], leaves: list[Any]) -> list[Any]:
    """The gradients of the results by the leaves, with zeros where there is none."""
    library = (torch, ag)[side]
    outputs = [x for x in results if x.requires_grad]
    weights = [
        pair[side].detach()
        for pair in _weights([torch.empty(x.shape, dtype=getattr(torch, dtype_name(x.dtype)))
                              for x in outputs], 4)
    ]  # fmt: skip
    if not outputs:
        return []
    found = library.autograd.grad(outputs, leaves, weights, allow_unused=True)
    return _filled(library, found, leaves)


def _replaced(duals: dict[int, Any], value: Any) -> Any:
    """Arguments with dual tensors in the place of leaves."""
    if isinstance(value, dict):
        return {key: _replaced(duals, part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_replaced(duals, part) for part in value])
    return duals.get(id(value), value)


def check_in_place(
    name: str,
    *,
    dtypes: tuple[str, ...] = DTYPES,
    limit: int = 12,
    skip: Mapping[str, Callable[[Any], bool]] | None = None,
) -> None:
    """Compare `name_` with PyTorch's: values, what it returns, the version, the gradients.

    Samples that PyTorch refuses have to be refused, with the same class.
    """
    checked = 0
    for op in infos(name):
        if op.inplace_variant is None:
            continue
        method = getattr(ag.Tensor, op.inplace_variant.__name__, None)
        assert method is not None, f"Tensor has no method {op.inplace_variant.__name__}"
        forward = {dtype_name(dtype) for dtype in op.supported_dtypes("cpu")}
        backward = {dtype_name(dtype) for dtype in op.supported_backward_dtypes("cpu")}
        for dtype in dtypes:
            if dtype not in forward:
                continue
            derive = op.supports_autograd and dtype in backward
            found = samples(op, dtype, requires_grad=derive, limit=limit, skip=skip)
            for place, sample in enumerate(found):
                if not isinstance(sample.input, torch.Tensor):
                    continue
                with _about(f"{name}_ for {dtype}, sample {place}", sample):
                    _compare_in_place(op.inplace_variant, method, sample)
                checked += 1
    assert checked, f"{name}_: nothing was compared"


def _compare_in_place(theirs: Any, ours: Any, sample: Any) -> None:
    twins = Twins(copy=True)
    leaf = twins.of(sample.input)
    args = twins.of(list(sample.args))
    keywords = twins.of(sample.kwargs)
    # Leaves can't be changed in place, so the methods change copies of them.
    x = (leaf[0].clone(), leaf[1].clone())
    before = x[1]._version
    try:
        with _quiet():
            expected = theirs(x[0], *args[0], **keywords[0])
    except Exception as error:
        with pytest.raises(error_class(error)):
            ours(x[1], *args[1], **keywords[1])
        assert x[1]._version == before
        return
    found = ours(x[1], *args[1], **keywords[1])
    assert found is x[1]
    assert found._version > before
    compare(expected, found)
    if twins.leaves:
        compare_derivatives(expected, found, twins.leaves, 1)


def error_class(error: Exception) -> type[Exception]:
    """The nearest of an error's classes that is built in, not PyTorch's own."""
    return next(c for c in type(error).__mro__ if c.__module__ == "builtins")


def check_refused(program: Callable[[Any], Any]) -> None:
    """What PyTorch refuses to do is refused here, too, with the same class of error."""
    with pytest.raises(Exception) as theirs:  # noqa: PT011  the class is compared
        program(torch)
    with pytest.raises(error_class(theirs.value)):
        program(ag)


def check_call(call: Callable[[Any, Any], Any], tolerance: float | None = None) -> None:
    """A call, given a library and its `tensor`, has like results or errors of one class."""
    try:
        with _quiet():
            expected = call(torch, torch.tensor)
    except Exception as error:
        with pytest.raises(error_class(error)) as raised:
            call(ag, ag.tensor)
        assert len(str(raised.value)) > 10
        return
    found = call(ag, ag.tensor)
    compare(expected, found, tolerance)
    for theirs, ours in zip(
        tensors_of(expected, torch.Tensor), tensors_of(found, ag.Tensor), strict=True
    ):
        assert (ours.requires_grad, ours.is_leaf) == (theirs.requires_grad, theirs.is_leaf)


def check_kink(function: Callable[..., Any], *values: Any) -> None:
    """The value and the gradients at a kink, by kernels and by rules, are PyTorch's to the digit.

    NumPy stays silent about infinities, though warnings are errors.
    """
    theirs = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]
    expected = function(torch, *theirs)
    wanted = torch.autograd.grad(expected, theirs, torch.ones_like(expected))
    ours = [ag.tensor(v, dtype=ag.float64, requires_grad=True) for v in values]
    found = function(ag, *ours)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-14)
    one = ag.ones(found.shape, dtype=ag.float64)
    for create_graph in (False, True):
        with np.errstate(all="ignore"):
            gradients = ag.grad(found, ours, one, retain_graph=True, create_graph=create_graph)
        for gradient, reference in zip(gradients, wanted, strict=True):
            np.testing.assert_allclose(
                gradient.detach().numpy(), reference.numpy(force=True), rtol=1e-14
            )


def check_errors(
    name: str,
    *,
    skip: Mapping[str, str] | None = None,
) -> int:
    """What PyTorch's own error samples raise must be raised here, too.

    Args:
        name: the function.
        skip: by a part of PyTorch's message, the reason why there is no such error here.

    Returns:
        How many there were.
    """
    ours = resolve(name)
    count = 0
    for op in infos(name):
        if op.error_inputs_func is None:
            continue
        with _quiet():
            errors = list(op.error_inputs("cpu"))
        for place, error in enumerate(errors):
            sample = error.sample_input
            if "out" in sample.kwargs:
                # No function of asyncgrad takes `out`.
                continue
            if any(x.ndim > 64 for x in tensors_of([sample.input, *sample.args], torch.Tensor)):
                # NumPy's arrays have at most 64 axes.
                continue
            twins = Twins(copy=True)
            args = twins.of([sample.input, *sample.args])
            keywords = twins.of(sample.kwargs)
            with pytest.raises(error.error_type) as raised, _quiet():
                op.op(*args[0], **keywords[0])
            if any(part in str(raised.value) for part in skip or {}):
                continue
            with (
                _about(f"{name}, error sample {place} ({raised.value})", sample),
                pytest.raises(error_class(raised.value)) as found,
            ):
                ours(*args[1], **keywords[1])
            assert str(found.value), f"{name}: an error without a message"
            count += 1
    return count


@functools.cache
def has_errors(name: str) -> bool:
    """Whether PyTorch has error samples for a function."""
    return any(op.error_inputs_func is not None for op in infos(name))
