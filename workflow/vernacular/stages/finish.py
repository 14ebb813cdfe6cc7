"""Stage `finish`: results that are missing at the end of a run."""

import csv
from pathlib import Path

from vernacular.core import artifacts
from vernacular.core.errors import UserError
from vernacular.core.fields import Stage
from vernacular.core.metadata import split_list

MAX_MODELS = 10  # that lack the same results
MAX_EVALUATIONS = 3  # missing for the same reason; the others are in the notes


class Finish(Stage):
    """Fail if results are missing from the summary."""

    notes: Path  # notes of the summary, as CSV
    out: Path  # written if none is missing


def finish(args: Finish) -> str:
    """Raise UserError with what is missing from the summary, which is complete otherwise."""
    with open(args.notes, encoding="utf-8-sig", newline="") as file:
        missing = [row for row in csv.DictReader(file) if row["kind"] == "unavailable"]
    if missing:
        lines = "\n".join(_missing_lines(missing))
        raise UserError(f"the summary is written, but results are missing:\n{lines}")
    artifacts.write_text(args.out, "No results are missing from the summary.\n")
    return "finish: no results are missing from the summary"


def _missing_lines(rows: list[dict]) -> list[str]:
    """Return the missing evaluations, grouped by models and by reason."""
    reasons: dict[str, dict[str, dict[str, None]]] = {}
    for row in rows:
        evaluations = reasons.setdefault(row["models"], {}).setdefault(row["note"], {})
        evaluations |= dict.fromkeys(split_list(row["evaluations"]))
    lines = []
    for models, by_note in reasons.items():
        lines.append(f"  {_first(split_list(models), MAX_MODELS)}")
        for note, names in by_note.items():  # of no evaluation, if external results are not used
            lines.append(f"    {_first(list(names), MAX_EVALUATIONS)}: {note}" if names else f"    {note}")
    return lines


def _first(names: list[str], limit: int) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
