"""Conversion of raw rows to items with unique IDs and counts of rejected rows; seeded sampling of items."""

from collections import Counter

from vernacular.core.fingerprint import fingerprint
from vernacular.data.columns import Cells, RowRejected, as_text, comparable, find, location_of, replace_surrogates
from vernacular.data.layouts import CONVERTERS, answer_alphabet


def make_items(rows: list[dict], item_type: str, columns: dict, *, few_shot: bool = False) -> tuple[list[dict], dict]:
    """Return (rows per ITEMS, counts of rows), with the ID prefix `shot/` for few-shot examples (`few_shot`).

    The prefix is needed because datasets number each split from 1. Counts: read, kept, dropped and repaired (by
    reason), duplicates, and first_dropped (by reason, a sentence on the first row dropped for it).
    """
    dropped, repaired = Counter(), Counter()
    first_dropped: dict[str, str] = {}
    alphabet = answer_alphabet(rows, columns)
    items = []
    for row_index, row in enumerate(rows):
        cells = Cells(replace_surrogates(row), columns, alphabet)
        if cells.row != row:
            cells.repaired.add("lone surrogates replaced by U+FFFD")
        try:
            content = CONVERTERS[item_type](cells)
            if not few_shot and item_type == "multi_answer" and len(content["gold"]) == len(content["choices"]):
                raise RowRejected("no incorrect answer", *content["choices"])
            category = cells.text("category") or None
            cluster_id = _cluster_id(cells, content, item_type)
        except RowRejected as reason:
            dropped[str(reason)] += 1
            first_dropped.setdefault(str(reason), f"{location_of(row, row_index)}: {reason.detail}")
            continue
        repaired.update(cells.repaired)
        content["extra"] = {**_extra(cells.row, columns), **content["extra"]}
        content["extra"] = {name: text for name, text in content["extra"].items() if text}
        digest = fingerprint([content, category])[:16]
        items.append(
            {
                "item_id": _upstream_id(cells.row, columns) or digest,
                "few_shot": few_shot,
                **content,
                "cluster_id": cluster_id,
                "category": category,
                "source_row": row_index,
                "_digest": digest,
            }
        )
    duplicates = _make_unique(items, "shot/" if few_shot else "")
    counts = {
        "read": len(rows),
        "kept": len(items),
        "dropped": dict(dropped),
        "first_dropped": first_dropped,
        "repaired": dict(repaired),
        "duplicates": duplicates,
    }
    return items, counts


def mark_repeats(items: list[dict]) -> None:
    """Set `repeats` of each item whose content another evaluated item has, too, to the smallest ID of such items.

    Content: context, question and options in any order, as they look. The answer is not part of it, because an example
    with the same question is a leak even if one of the two answers is an error.
    """
    groups: dict[str, list[dict]] = {}
    for item in items:
        texts = [item["context"], item["question"], *sorted(map(comparable, item["choices"]))]
        key = fingerprint([" ".join(comparable(text).split()) for text in texts])
        groups.setdefault(key, []).append(item)
    for group in groups.values():
        evaluated = min((item["item_id"] for item in group if not item["few_shot"]), default=None)
        for item in group:
            item["repeats"] = evaluated if len(group) > 1 else None


def sample(items: list[dict], limit: int | None, seed: int) -> list[dict]:
    """Return at most `limit` of `items`, in complete clusters, sampled by hash and thus independently of row order.

    Clusters are taken in the order of a hash of seed and cluster ID; a cluster that would exceed the limit is skipped,
    except for the first. Few-shot examples are not counted and always retained.
    """
    evaluated_items = [item for item in items if not item["few_shot"]]
    if limit is None or len(evaluated_items) <= limit:
        return items
    clusters: dict[str, list[dict]] = {}
    for item in evaluated_items:
        clusters.setdefault(item["cluster_id"] or f"item {item['item_id']}", []).append(item)
    selected_ids: set[str] = set()
    for cluster in sorted(clusters, key=lambda cluster: fingerprint([seed, cluster])):
        if not selected_ids or len(selected_ids) + len(clusters[cluster]) <= limit:
            selected_ids |= {item["item_id"] for item in clusters[cluster]}
        if len(selected_ids) >= limit:
            break
    return [item for item in items if item["few_shot"] or item["item_id"] in selected_ids]


def _extra(row: dict, columns: dict) -> dict[str, str]:
    return {name: as_text(find(row, column)) for name, column in columns.get("extra", {}).items()}


def _upstream_id(row: dict, columns: dict) -> str:
    spec = columns.get("id", [])
    parts = [as_text(find(row, column)) for column in ([spec] if isinstance(spec, str) else spec)]
    return "#".join(filter(None, parts))


def _cluster_id(cells: Cells, content: dict, item_type: str) -> str | None:
    cluster_id = cells.text("cluster")
    if cluster_id:
        return cluster_id
    # questions on one passage are not independent observations, even if the dataset has no passage IDs
    return fingerprint(content["context"])[:16] if item_type == "passage" else None


def _make_unique(items: list[dict], prefix: str) -> int:
    """Make item IDs unique in place, independently of the order of rows; return the number of exact repeats.

    An ID with several contents is followed by the hash of the content; exact repeats are numbered.
    """
    contents: dict[str, set[str]] = {}
    for item in items:
        contents.setdefault(item["item_id"], set()).add(item["_digest"])
    upstream_ids, seen = set(contents), Counter()
    for item in items:
        digest = item.pop("_digest")
        item_id = item["item_id"]
        if len(contents[item_id]) > 1:
            item_id = _avoid_collision(f"{item_id}-{digest[:8]}", upstream_ids)
        seen[item_id] += 1
        item["item_id"] = prefix + (
            item_id if seen[item_id] == 1 else _avoid_collision(f"{item_id}~{seen[item_id]}", upstream_ids)
        )
    return sum(n - 1 for n in seen.values())


def _avoid_collision(item_id: str, upstream_ids: set[str]) -> str:
    """Append ~ to `item_id` until it differs from all IDs of the dataset."""
    while item_id in upstream_ids:
        item_id += "~"
    return item_id
