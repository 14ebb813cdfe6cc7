"""Making items and asking them, for the tests of this folder."""

from vernacular.requests.build import build


def item(item_id="i1", context="", question="", choices=(), gold=(), target=None, demonstration=False, **rest):
    return {
        "item_id": item_id,
        "demonstration": demonstration,
        "context": context,
        "question": question,
        "choices": list(choices),
        "gold": list(gold),
        "target": target,
        "cluster_id": None,
        "category": None,
        "source_row": 0,
        "extra": [],
    } | rest


def ask(items, layout, protocol, *, language="gl", shots=0, seed=0, style="default", **options):
    task = {"task": "t", "prompt": layout, "protocols": [protocol]}
    return build(
        items, task, language=language, protocol=protocol, shots=shots, seed=seed, style=style, options=options
    )


def spans(rows):
    return {r["role"]: (r["prefix"] + r["text"])[r["span_start"] : r["span_end"]] for r in rows}
