"""Few-shot examples: sampled once per (task, language, shots, seed).

They are sampled from rows that the dataset reserves for this purpose (`few_shot`) and that have not the content of an
evaluated item, else from a pool of evaluated items, which are then excluded from the evaluation with all their repeats.
Sampling is by hash, so that a larger number of shots adds examples
and changes none.
"""

from vernacular.core.errors import ConfigError, format_count
from vernacular.core.fingerprint import fingerprint
from vernacular.protocols.prompts import gold_text
from vernacular.types import Item

POOL = 32  # items from which held-out examples are sampled


def sample_examples(
    items: list[Item], *, task: str, language: str, shots: int, seed: int
) -> tuple[list[dict], set[str]]:
    """Return (few-shot examples in prompt order, IDs of the evaluated items with their content).

    Raises ConfigError if fewer than `shots` rows have a known answer.
    """
    if not shots:
        return [], set()
    usable = [item for item in items if _is_usable(item)]
    reserved = [item for item in usable if item["few_shot"]]
    pool = [item for item in reserved if item.get("repeats") is None]
    if not reserved:
        pool = sorted(usable, key=_limit_order)[: max(POOL, shots)]
    pool = sorted(pool, key=lambda item: fingerprint([task, language, seed, item["item_id"]]))
    if not reserved:  # of equal rows, the first
        pool = list({_content_id(item): item for item in reversed(pool)}.values())[::-1]
    examples = pool[:shots]
    contents = set() if reserved else {_content_id(item) for item in examples}
    held_out = {item["item_id"] for item in items if _content_id(item) in contents}
    if len(pool) < shots or (not reserved and all(item["item_id"] in held_out for item in usable)):
        suffix = "" if reserved or not usable else ", and at least one item to evaluate"
        leaks = f" ({len(reserved) - len(pool)} more are evaluated items)" if len(pool) < len(reserved) else ""
        raise ConfigError(
            f"{task}.{language}: expected at least {format_count(shots, 'row')} with a known answer as few-shot "
            f"examples{suffix}, got {len(pool)}{leaks}. Set a smaller value of shots."
        )
    return examples, held_out


def _content_id(item: Item) -> str:
    """Return the ID that evaluated items with the same content share."""
    return item.get("repeats") or item["item_id"]


def _limit_order(item: Item) -> tuple[str, str]:
    """Return the sort key by which a limit selects items (data/items.py).

    The pool is part of the dataset under any larger limit, so that the same examples are sampled with and without one.
    """
    return fingerprint([0, item["cluster_id"] or f"item {item['item_id']}"]), item["item_id"]


def _is_usable(item: Item) -> bool:
    """Return whether an item has an answer and at most 26 options: one rule, so that all protocols share examples."""
    return bool(gold_text(item)) and len(item["choices"]) != 1 and len(item["choices"]) <= 26
