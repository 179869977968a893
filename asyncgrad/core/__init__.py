"""The graph and the state of a backward pass. Nothing here waits, and nothing here knows arrays."""
