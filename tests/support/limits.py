"""Constants of modules that limit something, which tests lower so that small data exceed them."""

import importlib

import pytest


def lower(patch: pytest.MonkeyPatch, module: str, **constants) -> None:
    """Set limits of a module by their names, without the underscore of those that no other module reads."""
    loaded = importlib.import_module(f"vernacular.{module}")
    for name, value in constants.items():
        assert name.isupper(), f"{name} is no constant"
        patch.setattr(loaded, name if hasattr(loaded, name) else f"_{name}", value)
