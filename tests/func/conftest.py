"""Lets failed comparisons say what differs."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "autograd"))
pytest.register_assert_rewrite("both")
