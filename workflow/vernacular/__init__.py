"""Vernacular: evaluation of language models in low-resource languages."""

__version__ = "1.0.0"
_LAZY = {  # imported when it is used, and by its name: no stage depends on it
    "load": ("vernacular.notebook", "load"),
    "lm_eval_model": ("vernacular.commands.lm_eval", "VernacularLM"),
}


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module, attribute = _LAZY[name]
    return getattr(importlib.import_module(module), attribute)
