"""Hand-made per-item results, and the comparison of two of them."""

import tempfile
from pathlib import Path

import pyarrow as pa
from vernacular.comparison.align import align
from vernacular.comparison.compare import columns_of
from vernacular.comparison.pairwise import compare_sides
from vernacular.core import artifacts
from vernacular.statistics.significance import add_significance, corrected, rank

EVALUATION = {
    "evaluation": "t.gl.options.0shot",
    "task": "t",
    "language": "gl",
    "protocol": "options",
    "shots": 0,
    "seed": 0,
    "style": "default",
    "prompt": "default",
}


def row(item_id, correct=None, *, scores=None, choices=("yes", "no"), gold=(0,), prompt=None, **values):
    """Return a row of TASK_RESULTS; `correct` also sets its accuracy, `values` are further per-item values."""
    predicted = None
    if scores:
        top = max(scores)
        predicted = [i for i, score in enumerate(scores) if score == top]
    elif correct is not None:
        predicted = [gold[0]] if correct else [next(i for i in range(len(choices)) if i not in gold)]
    return {
        "item_id": item_id,
        "cluster_id": values.pop("cluster", None),
        "category": values.pop("category", None),
        "prompt": f"is it {item_id}?" if prompt is None else prompt,
        "choices": list(choices),
        "gold": list(gold),
        "option_scores": scores,
        "prediction": " | ".join(choices[i] for i in predicted) if predicted else None,
        "predicted_indices": predicted,
        "correct": None if correct is None else bool(correct),
        "tie": None if predicted is None else len(predicted) > 1,
        "metrics": ({} if correct is None else {"accuracy": float(correct)}) | values,
        "flags": None,
    }


def stored(rows, kind: artifacts.Kind) -> pa.Table:
    """Return rows as an artifact has them that was written and read; raise RowsError if they do not fit the schema."""
    with tempfile.TemporaryDirectory() as directory:
        return artifacts.read(artifacts.write(Path(directory) / "rows.parquet", kind, rows, {}), kind)


def rows(outcomes, **shared):
    """Return one row per entry of `outcomes`, with ids i00, i01, …"""
    return [row(f"i{number:02}", correct, **shared) for number, correct in enumerate(outcomes)]


def compare(baseline, candidate, metrics, evaluation, *, names=("baseline", "candidate"), **options):
    """Return the rows of COMPARISONS of two lists of rows, as a family of one evaluation; `options` as in compare_sides."""
    items, results = align({names[0]: baseline, names[1]: candidate})
    return add_significance(compare_sides(items, results, [names], metrics, evaluation, **options))


def rankings(items, sides, metrics, evaluation, **options):
    """Return the rows of RANKINGS of a run with one evaluation; `options` as in columns_of."""
    columns = columns_of(items, sides, metrics, evaluation, **options)
    return [row for column in columns for row in rank(column, corrected((), columns))]
