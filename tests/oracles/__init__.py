"""Independent references: what other tools compute, restated in plain PyTorch, one text at a time.

Nothing here imports vernacular, so that an error in it cannot be on both sides of a comparison. Tests compare the engine
with these functions on tiny models, and `make replicate` on real ones. Differences of a tool that change its values are
restated, too: they are what a comparison has to explain.
"""
