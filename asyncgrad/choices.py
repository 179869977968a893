"""Options that take one of a few words.

The words of each option stand here alone: annotations name the type, and checks ask `words` for it.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

# -- losses and layers
Reduction: TypeAlias = Literal["none", "mean", "sum"]
DivergenceReduction: TypeAlias = Literal["none", "mean", "sum", "batchmean"]
GeluFormula: TypeAlias = Literal["none", "tanh"]
BagMode: TypeAlias = Literal["sum", "mean", "max"]
Activation: TypeAlias = Literal["relu", "gelu"]
RecurrentActivation: TypeAlias = Literal["tanh", "relu"]
OrthogonalMap: TypeAlias = Literal["matrix_exp", "cayley", "householder"]
# -- how parameters are filled
FanMode: TypeAlias = Literal["fan_in", "fan_out"]
GainOf: TypeAlias = Literal[
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu",
]  # fmt: skip
# -- images
PadMode: TypeAlias = Literal["constant", "reflect", "replicate", "circular"]
ConvPadding: TypeAlias = Literal["same", "valid"]
ConvPaddingMode: TypeAlias = Literal["zeros", "reflect", "replicate", "circular"]
ResizeMode: TypeAlias = Literal[
    "nearest", "nearest-exact", "area", "linear", "bilinear", "bicubic", "trilinear"
]
SampleMode: TypeAlias = Literal["bilinear", "nearest", "bicubic"]
SamplePadding: TypeAlias = Literal["zeros", "border", "reflection"]
# -- numbers
Side: TypeAlias = Literal["left", "right"]
Rounding: TypeAlias = Literal["trunc", "floor"]
Indexing: TypeAlias = Literal["ij", "xy"]
Interpolation: TypeAlias = Literal["linear", "lower", "higher", "midpoint", "nearest"]
DistanceMode: TypeAlias = Literal[
    "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"
]
ScatterKind: TypeAlias = Literal["add", "multiply"]
IndexReduceKind: TypeAlias = Literal["prod", "mean", "amax", "amin"]
ScatterReduceKind: TypeAlias = Literal["sum", "prod", "mean", "amax", "amin"]
# -- matrices and transforms
FourierNorm: TypeAlias = Literal["forward", "backward", "ortho"]
MatrixNorm: TypeAlias = Literal["fro", "nuc"]
QrMode: TypeAlias = Literal["reduced", "complete", "r"]
Triangle: TypeAlias = Literal["L", "U", "l", "u"]
LstsqDriver: TypeAlias = Literal["gels", "gelsy", "gelsd", "gelss"]
# -- optimisers and schedules
Annealing: TypeAlias = Literal["cos", "linear"]
CyclicMode: TypeAlias = Literal["triangular", "triangular2", "exp_range"]
CyclicScale: TypeAlias = Literal["cycle", "iterations"]
PlateauMode: TypeAlias = Literal["min", "max"]
ThresholdMode: TypeAlias = Literal["rel", "abs"]
LineSearch: TypeAlias = Literal["strong_wolfe"]
MuonLength: TypeAlias = Literal["original", "match_rms_adamw"]
# -- passes and transforms of functions
Wait: TypeAlias = Literal["done", "enqueued"]
HookMode: TypeAlias = Literal["all", "any"]
Strategy: TypeAlias = Literal["forward-mode", "reverse-mode"]
Randomness: TypeAlias = Literal["error", "different", "same"]
DeterminismCheck: TypeAlias = Literal["default", "none"]
Schedule: TypeAlias = Literal["1f1b", "gpipe"]
# -- settings and devices
PrintProfile: TypeAlias = Literal["default", "short", "full"]
Precision: TypeAlias = Literal["highest", "high", "medium"]
DebugMode: TypeAlias = Literal["default", "warn", "error"]
Clock: TypeAlias = Literal["virtual", "real"]
Waiting: TypeAlias = Literal["thread", "poll"]


def words(option: Any) -> tuple[str, ...]:
    """The words that an option takes."""
    # `typing.get_args` takes many times as long.
    taken: tuple[str, ...] = option.__args__
    return taken


def words_by_name(option: str) -> tuple[str, ...]:
    """The words that an option takes, by the name of its type."""
    return words(globals()[option])
