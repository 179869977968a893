"""What users can name, and with which arguments: a change has to be meant."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent
public_names = runpy.run_path(str(ROOT / "tools/public_names.py"))


def test_every_public_name_and_its_arguments_are_as_recorded():
    """Otherwise run `python tools/public_names.py`, and tell users what has changed."""
    recorded = public_names["FILE"].read_text(encoding="utf-8").splitlines()
    assert public_names["lines"]() == recorded
