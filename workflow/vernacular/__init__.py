"""Vernacular: evaluation of language models in low-resource languages."""

__version__ = "1.0.0"


def load(source, *, adapter=None, **settings):
    """Load a model for a notebook; see `vernacular.notebook.load`."""
    import importlib

    # imported when it is called, and by its name: no stage depends on it
    return importlib.import_module("vernacular.notebook").load(source, adapter=adapter, **settings)
