"""Per-item results made by hand, for the tests of this folder, and two of them compared."""

from vernacular.comparison.align import align
from vernacular.comparison.compare import with_families
from vernacular.comparison.pairwise import compare_sides

FACTS = {
    "evaluation": "t.gl.options.0shot",
    "task": "t",
    "language": "gl",
    "protocol": "options",
    "shots": 0,
    "seed": 0,
    "style": "default",
}


def row(item_id, right=None, *, scores=None, choices=("yes", "no"), gold=(0,), prompt=None, **values):
    """A row per TASK_RESULTS; `right` is its accuracy too, `values` are further per-item values."""
    chosen = None
    if scores:
        top = max(scores)
        chosen = [i for i, score in enumerate(scores) if score == top]
    elif right is not None:
        chosen = [gold[0]] if right else [next(i for i in range(len(choices)) if i not in gold)]
    return {
        "item_id": item_id,
        "cluster_id": values.pop("cluster", None),
        "category": values.pop("category", None),
        "prompt": f"is it {item_id}?" if prompt is None else prompt,
        "choices": list(choices),
        "gold": list(gold),
        "option_scores": scores,
        "prediction": " | ".join(choices[i] for i in chosen) if chosen else None,
        "predicted_indices": chosen,
        "correct": None if right is None else bool(right),
        "tie": None if chosen is None else len(chosen) > 1,
        "metrics": ({} if right is None else {"accuracy": float(right)}) | values,
        "flags": None,
    }


def rows(rights, **same):
    """One row per entry of `rights`; ids i00, i01, …"""
    return [row(f"i{number:02}", right, **same) for number, right in enumerate(rights)]


def compare(baseline, candidate, metrics, facts, *, names=("baseline", "candidate"), **given):
    """Rows per COMPARISONS of two lists of rows, the one evaluation a family of its own; `given` as in compare_sides."""
    items, sides = align({names[0]: baseline, names[1]: candidate})
    return with_families(compare_sides(items, sides, [names], metrics, facts, **given))
