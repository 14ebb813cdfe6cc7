"""Number of examples and seed of property tests: few and always the same in `make test`.

`make soak` uses twenty times as many, different each time; SOAK_SEED repeats a soak.
"""

import os

SEED = int(os.environ["SOAK_SEED"]) if "SOAK_SEED" in os.environ else None
TIMES = 20


def examples(count: int) -> int:
    """Return the number of examples of a test that tries `count` of them in `make test`."""
    return count if SEED is None else TIMES * count


def seed(default: int) -> int:
    """Return the seed of a test that draws random numbers: `default` in `make test`; derived from SOAK_SEED in a soak."""
    return default if SEED is None else 1_000_003 * SEED + default
