"""Items and their requests, for protocol tests."""

from vernacular.protocols.build import build

from support.sample_items import item as item


def build_requests(
    items,
    item_type,
    protocol,
    *,
    language="gl",
    shots=0,
    seed=0,
    style="default",
    prompt="default",
    columns=None,
    **options,
):
    task = {
        "task": "t",
        "item_type": item_type,
        "protocols": [protocol],
        "languages": {language: {"columns": columns or {}}},
    }
    return build(
        items,
        task,
        language=language,
        protocol=protocol,
        shots=shots,
        seed=seed,
        style=style,
        options=options,
        prompt=prompt,
    )


def spans(rows):
    return {r["role"]: (r["prefix"] + r["text"])[r["span_start"] : r["span_end"]] for r in rows}
