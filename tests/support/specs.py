"""The specs of rules (`config/dependencies.py`) as the rules pass them: JSON-like values."""

from vernacular.config import dependencies
from vernacular.core.fields import to_json


def __getattr__(name: str):
    value = getattr(dependencies, name)
    return (lambda *arguments: to_json(value(*arguments))) if name.endswith("_spec") else value
