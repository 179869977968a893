"""Tensors beyond the table: made, copied, moved, printed, changed in place."""
