"""The table of derivatives, by chapter."""
