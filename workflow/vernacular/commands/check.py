"""Command `check`: validate a config file and list its evaluations."""

from vernacular.config.load import load
from vernacular.core.errors import format_count


def check(args) -> str:
    """Print the evaluations of a config file; raise ConfigError if it is invalid."""
    config = load(args.config)
    for evaluation in config.evaluations:
        print(f"  {evaluation}")
    models, evaluations = format_count(len(config.models), "model"), format_count(len(config.evaluations), "evaluation")
    return f"check: {models}, {evaluations} per model"
