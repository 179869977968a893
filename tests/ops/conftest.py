"""Makes `oracle` and `tiers` importable from the chapters' folders, too."""
