"""Why some functions take longer than PyTorch's by more than is allowed."""

#: On 16 elements, above 1.5 times.
AT_TINY: dict[str, str] = {}
#: On 4 M elements, above twice.
AT_LARGE: dict[str, str] = {}
