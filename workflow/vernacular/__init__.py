"""Vernacular: evaluation of language models in low-resource languages."""

__version__ = "0.1.0"
