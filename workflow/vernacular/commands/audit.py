"""Command `audit`: reading lists from the results of a config, without the workflow; no model is loaded."""

from dataclasses import replace
from pathlib import Path

from vernacular.commands.reading_lists import ReadingLists, lists_of, reading_lists, results_path
from vernacular.config.dependencies import audit_spec
from vernacular.config.directories import run_command
from vernacular.config.load import load
from vernacular.core.errors import UserError, suggest


def audit(args) -> str:
    """Write reading lists from the results of a config, and print what each shows."""
    if args.items is not None and args.items < 1:
        raise UserError(f"--items: expected at least 1, got {args.items}.")
    config = load([args.config])
    spec = audit_spec(config, args.items)
    if args.evaluation:
        if args.evaluation not in spec.evaluations:
            raise UserError(f'evaluation "{args.evaluation}" not found.{suggest(args.evaluation, spec.evaluations)}')
        group = next(names for names in lists_of(spec).values() if args.evaluation in names)
        spec = replace(spec, evaluations={name: spec.evaluations[name] for name in group})
    for model in spec.models:
        for name in spec.evaluations:
            if not (path := results_path(Path(config.output), model, name)).exists():
                raise UserError(f"{path}: file not found. Run `{run_command(args.config)}` first.")
    out = args.out or Path(config.output, "summary")
    return reading_lists(
        ReadingLists(spec=spec, results=Path(config.output), items_dir=Path(config.resources, "items"), out=out)
    )
