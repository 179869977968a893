"""Makes the folder with `oracle` importable however pytest was started."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "ops"))
