"""Conversion of raw rows to items with unique IDs and counts of rejected rows; seeded sampling of items."""

from collections import Counter

from vernacular.core.fingerprint import fingerprint
from vernacular.data.columns import Cells, Dropped, as_text, find, sound
from vernacular.data.layouts import LAYOUTS


def make_items(rows: list[dict], item_type: str, columns: dict, *, few_shot: bool = False) -> tuple[list[dict], dict]:
    """Return (rows per ITEMS, counts of rows), with the ID prefix `shot/` for few-shot examples (`few_shot`).

    The prefix is needed because datasets number each split from 1. Counts: read, kept, dropped and repaired (by
    reason), duplicates, and first_dropped (by reason, the 0-based number of the first row dropped for it).
    """
    dropped, repaired = Counter(), Counter()
    first_dropped: dict[str, int] = {}
    items = []
    for number, row in enumerate(rows):
        cells = Cells(sound(row), columns)
        if cells.row != row:
            cells.repaired.add("lone surrogates replaced by U+FFFD")
        try:
            content = LAYOUTS[item_type](cells)
            if not few_shot and item_type == "multi_answer" and len(content["gold"]) == len(content["choices"]):
                raise Dropped("no incorrect answer")
            category = cells.text("category") or None
            cluster = _cluster(cells, content, item_type)
        except Dropped as reason:
            dropped[str(reason)] += 1
            first_dropped.setdefault(str(reason), number)
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
                "cluster_id": cluster,
                "category": category,
                "source_row": number,
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


def sample(items: list[dict], limit: int | None, seed: int) -> list[dict]:
    """Return at most `limit` of `items`, in complete clusters, sampled by hash and thus independently of row order.

    Clusters are taken in the order of a hash of seed and cluster ID; a cluster that would exceed the limit is skipped,
    except for the first. Few-shot examples are not counted and always retained.
    """
    evaluated = [item for item in items if not item["few_shot"]]
    if limit is None or len(evaluated) <= limit:
        return items
    clusters: dict[str, list[dict]] = {}
    for item in evaluated:
        clusters.setdefault(item["cluster_id"] or f"item {item['item_id']}", []).append(item)
    chosen: set[str] = set()
    for name in sorted(clusters, key=lambda name: fingerprint([seed, name])):
        if not chosen or len(chosen) + len(clusters[name]) <= limit:
            chosen |= {item["item_id"] for item in clusters[name]}
        if len(chosen) >= limit:
            break
    return [item for item in items if item["few_shot"] or item["item_id"] in chosen]


def _extra(row: dict, columns: dict) -> dict[str, str]:
    return {name: as_text(find(row, column)) for name, column in columns.get("extra", {}).items()}


def _upstream_id(row: dict, columns: dict) -> str:
    wanted = columns.get("id", [])
    parts = [as_text(find(row, column)) for column in ([wanted] if isinstance(wanted, str) else wanted)]
    return "#".join(filter(None, parts))


def _cluster(cells: Cells, content: dict, item_type: str) -> str | None:
    named = cells.text("cluster")
    if named:
        return named
    # questions on one passage are not independent observations, even if the dataset has no passage IDs
    return fingerprint(content["context"])[:16] if item_type == "passage" else None


def _make_unique(items: list[dict], before: str) -> int:
    """Make item IDs unique in place, independently of the order of rows; return the number of exact repeats.

    An ID with several contents is followed by the hash of the content; exact repeats are numbered.
    """
    contents: dict[str, set[str]] = {}
    for item in items:
        contents.setdefault(item["item_id"], set()).add(item["_digest"])
    upstream, seen = set(contents), Counter()
    for item in items:
        digest = item.pop("_digest")
        name = item["item_id"]
        if len(contents[name]) > 1:
            name = _unlike(f"{name}-{digest[:8]}", upstream)
        seen[name] += 1
        item["item_id"] = before + (name if seen[name] == 1 else _unlike(f"{name}~{seen[name]}", upstream))
    return sum(n - 1 for n in seen.values())


def _unlike(name: str, upstream: set[str]) -> str:
    """Append ~ to `name` until it differs from all IDs of the dataset."""
    while name in upstream:
        name += "~"
    return name
