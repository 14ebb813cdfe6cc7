"""Cut a model's work into shards of like size, so that several jobs can share it.

Items are never cut: what is asked about one stays together, and so do neighbours, which often share a passage. The cut
depends on the requests alone, so that every job of a model makes the same one.
"""

import pyarrow as pa

from vernacular.requests.schema import CHARACTERS_PER_TOKEN, NEW_TOKEN

_AT_A_TIME = 5_000  # rows


def cut(asked: dict[str, pa.Table], shards: int) -> dict[str, list[pa.Table]]:
    """Each evaluation's requests in `shards` tables (empty ones among them): entry k is the share of shard k.

    >>> one = pa.table({"item_id": ["a", "b"], "prefix": ["", ""], "text": ["x" * 7, "x" * 7],
    ...                 "max_new_tokens": [None, None], "longest_answer": [None, None]})
    >>> [part["item_id"].to_pylist() for part in cut({"e": one}, 2)["e"]]
    [['a'], ['b']]
    """
    if shards == 1:
        return {evaluation: [table] for evaluation, table in asked.items()}
    costs = {evaluation: _costs(table) for evaluation, table in asked.items()}
    total = sum(cost for of_items in costs.values() for cost in of_items.values())
    before = 0.0
    parts = {}
    for evaluation, table in asked.items():
        shard_of = {}
        for item, cost in costs[evaluation].items():
            shard_of[item] = min(int((before + cost / 2) / total * shards), shards - 1)
            before += cost
        of_rows = [shard_of[item] for item in table["item_id"].to_pylist()]
        parts[evaluation] = [table.filter(pa.array([of == shard for of in of_rows])) for shard in range(shards)]
    return parts


def _costs(table: pa.Table) -> dict[str, float]:
    """Estimated tokens of each item, in the table's order; the block that all share is read once and not counted."""
    costs: dict[str, float] = {}
    columns = ["item_id", "text", "max_new_tokens", "longest_answer"]
    for some in table.select(columns).to_batches(max_chunksize=_AT_A_TIME):
        for item, text, new, longest in zip(*(some[name].to_pylist() for name in columns), strict=True):
            generated = new if new is not None else len(longest or "") / CHARACTERS_PER_TOKEN
            costs[item] = costs.get(item, 0.0) + 1 + len(text) / CHARACTERS_PER_TOKEN + NEW_TOKEN * generated
    return costs
