"""Functions on tensors and their derivatives: a flat table that knows no graph task and no loop."""
