"""Rows of ITEMS, for the tests of what is asked of them and of what is made of the answers."""


def item(item_id="i1", context="", question="", choices=(), gold=(), target=None, **rest):
    """An item; `rest` sets any other column."""
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
        "extra": [],
    } | rest
