"""text: a request for the log-probability of an entire text, read in windows if it is longer than the context.

For the canonical-order test (`metrics/contamination.py`), the texts of a shard are joined by empty lines, in published
order and in shuffled ones: in addition, (order_permutations + 1) times the tokens of the dataset. Equal orders: one
request.
"""

from itertools import pairwise

from vernacular.core.errors import DataError
from vernacular.core.fingerprint import fingerprint
from vernacular.protocols.request_rows import RequestSettings, moments_extra, pll_extra, score_request, skipped_request
from vernacular.types import Item, Request

_SHARDS, _MIN_TEXTS = 50, 4  # default number of shards, of at least this many texts
_SEPARATOR = "\n\n"


def requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return one request, role "text"; `overlap` and `window` are in tokens."""
    text = item["context"]
    if not text.strip():
        return [skipped_request(item, "empty text")]
    extras = [*_extras(settings, pll_extra(settings)), *moments_extra(settings)]
    return [score_request(item, "text", "", text, extras=extras)]


def dataset_requests(items: list[Item], settings: RequestSettings) -> list[Request]:
    """Return the requests of the canonical-order test, if asked for; raise DataError if there are too few texts.

    The roles are "order:0" (published order), "order:1", …; those of a shard belong to its first item.
    """
    n_permutations = settings.options.get("order_permutations", 0)
    if not n_permutations:
        return []
    ordered = sorted((item for item in items if item["context"].strip()), key=lambda item: item["source_row"])
    extras = _extras(settings, ["causal_only"])
    rows = []
    for shard in _shards(ordered, settings.options.get("order_shards")):
        for number in range(n_permutations + 1):
            # a random order depends on the items and `number` only; it may be the published one
            order = sorted(shard, key=lambda item: fingerprint([number, item["item_id"]])) if number else shard
            text = _SEPARATOR.join(item["context"].strip() for item in order)
            rows.append(score_request(shard[0], f"order:{number}", "", text, extras=extras))
    return rows


def _shards(items: list[Item], n_shards: int | None) -> list[list[Item]]:
    """Return runs of consecutive items, whose numbers of items differ by at most one."""
    n = max(2, min(_SHARDS, len(items) // _MIN_TEXTS)) if n_shards is None else n_shards
    if len(items) < 2 * n:
        raise DataError(f"order_permutations: expected at least {2 * n} texts for {n} shards, got {len(items)}.")
    edges = [len(items) * k // n for k in range(n + 1)]
    return [items[low:high] for low, high in pairwise(edges)]


def _extras(settings: RequestSettings, statistics: list[str]) -> list[str]:
    extras = ["rolling", *statistics]
    extras += [f"{name}:{settings.options[name]}" for name in ("overlap", "window") if name in settings.options]
    return [*extras, *(["score_bos"] if settings.style == "lm_eval" else [])]
