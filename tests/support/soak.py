"""How many examples property tests try, and from which seed: few and always the same in `make test`.

In `make soak` they are twenty times as many, and others each time; SOAK_SEED repeats a soak.
"""

import os

SEED = int(os.environ["SOAK_SEED"]) if "SOAK_SEED" in os.environ else None
TIMES = 20


def examples(count: int) -> int:
    """The number of examples of a test that tries `count` of them in `make test`."""
    return count if SEED is None else TIMES * count


def seed(own: int) -> int:
    """The seed of a test that makes its own random numbers; `own` in `make test`, and in a soak another per test."""
    return own if SEED is None else 1_000_003 * SEED + own
