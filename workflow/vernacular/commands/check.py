"""Command `check`: validate a config, what it refers to, and list its evaluations."""

from vernacular.config.load import load
from vernacular.config.references import check_references
from vernacular.core.errors import format_count


def check(args) -> str:
    """Print the evaluations of a config with their numbers of items, and what is wrong with it.

    Raises:
        ConfigError: All mistakes, each in one or two lines.
    """
    config = load(args.config)
    references = check_references(config, online=args.online)
    for evaluation in config.evaluations:
        n_items = references.items.get(evaluation)
        print(f"  {evaluation}" + (f": {format_count(n_items, 'item')}" if n_items is not None else ""))
    for note in references.notes:
        print(f"Note: {note}")
    if references.unchecked:
        names = ", ".join(dict.fromkeys(references.unchecked))
        print(f"Not checked, because not on this disk: {names}" + ("" if args.online else " (--online asks the Hub)"))
    references.problems.raise_all()
    models, evaluations = format_count(len(config.models), "model"), format_count(len(config.evaluations), "evaluation")
    return f"check: {models}, {evaluations} per model"
