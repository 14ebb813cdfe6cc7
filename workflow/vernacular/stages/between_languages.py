"""Stage `between-languages`: per-item results of parallel tasks -> consistency between languages, and items to read."""

from pathlib import Path

from vernacular.comparison.languages import compare_languages, groups
from vernacular.comparison.schema import BETWEEN_LANGUAGES, LANGUAGE_ITEMS
from vernacular.config.specs import LanguagesSpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage, to_json
from vernacular.core.metadata import note
from vernacular.stages.sides import model_results, write_table


class BetweenLanguages(Stage):
    """Compare what each model answers to the same items in several languages."""

    spec: LanguagesSpec  # of the rule: what the results depend on
    results: Path  # directory with one directory per model
    out: Path  # directory of the tables


def between_languages(args: BetweenLanguages) -> str:
    """Write the consistency between languages, and the items that are correct in the reference language only."""
    spec = args.spec
    settings = {name: vars(evaluation) for name, evaluation in spec.evaluations.items()}
    results, pairs = model_results(args.results, spec), [tuple(pair) for pair in spec.pairs]
    rows, items, notes = [], [], []
    for group in groups(settings):
        for found, own in zip((rows, items, notes), compare_languages(group, results, pairs, settings), strict=True):
            found += own
    for text in notes:
        print(f"between-languages: {text}")
    sources = [args.results / model / "metrics.parquet" for model in spec.models]
    metadata = {"fingerprint": artifacts.input_fingerprint(to_json(spec), *sources)}
    named = (text.split(": ", 1) for text in notes)
    metadata["notes"] = [note("between languages", text, evaluation=name) for name, text in named]
    for kind, table in ((BETWEEN_LANGUAGES, rows), (LANGUAGE_ITEMS, items)):
        write_table(args.out / f"{kind.name.replace(' ', '_')}.parquet", kind, table, metadata)
    return f"between-languages: {format_count(len(rows), 'value')}, {format_count(len(items), 'item')} to read"
