"""The table of derivatives: one module for each group of ops."""
