"""Command `check`: validate a config file and list its evaluations."""

from vernacular.config import load as config
from vernacular.core.errors import counted


def check(args) -> str:
    """Print the evaluations of a config file; raise ConfigError if it is invalid."""
    found = config.load(args.config)
    for evaluation in found.evaluations:
        print(f"  {evaluation}")
    return f"check: {counted(len(found.models), 'model')}, {counted(len(found.evaluations), 'evaluation')} per model"
