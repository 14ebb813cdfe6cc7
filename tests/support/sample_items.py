"""Rows of ITEMS for tests of requests and metrics."""


def item(item_id="i1", context="", question="", choices=(), gold=(), target=None, **columns):
    """Return an item; `columns` sets any other column."""
    return {
        "item_id": item_id,
        "few_shot": False,
        "context": context,
        "question": question,
        "choices": list(choices),
        "gold": list(gold),
        "target": target,
        "cluster_id": None,
        "category": None,
        "source_row": 0,
        "extra": {},
    } | columns
