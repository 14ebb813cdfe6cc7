"""Python's garbage collection, less often than by default.

Imports of large libraries and Snakemake's tables create a million objects, none of which is garbage, and Python
searches them again and again: a fifth of the time of importing transformers, and a sixth of that of planning.
"""

import gc

_OBJECTS = 10_000  # created between two searches of the youngest; by default 700 or 2,000, as of Python 3.12


def collect_rarely() -> None:
    """Search what exists by now for garbage no more, and what is created from now on less often."""
    gc.freeze()
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
