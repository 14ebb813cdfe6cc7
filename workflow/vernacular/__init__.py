"""Vernacular: evaluation of language models in low-resource languages."""

__version__ = "1.0.0"
_LAZY = {"load": "vernacular.notebook"}  # imported when it is used, and by its name: no stage depends on it


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)
