"""Vernacular: evaluate language models in the languages they are weakest in."""

__version__ = "0.1.0"
