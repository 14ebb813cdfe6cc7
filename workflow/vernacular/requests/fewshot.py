"""Drawing demonstrations: once per (task, language, shots, seed), whatever the items' order or the other languages.

They come from rows the data set sets aside (`demonstration`), else from a pool of evaluated items, and are then left
out of the evaluation. Draws go by hash, so more shots add demonstrations and change none.
"""

from vernacular.core.errors import ConfigError
from vernacular.core.fingerprint import fingerprint
from vernacular.requests.prompts import answer

POOL = 32  # items that held-out demonstrations are drawn from


def sample_examples(
    items: list[dict], *, task: str, language: str, shots: int, seed: int
) -> tuple[list[dict], set[str]]:
    """(demonstrations in prompt order, ids of evaluated items among them).

    Raises ConfigError where fewer than `shots` rows have an answer to show.
    """
    if not shots:
        return [], set()
    usable = [item for item in items if _can_be_shown(item)]
    aside = [item for item in usable if item["demonstration"]]
    pool = aside or sorted(usable, key=_limit_order)[: max(POOL, shots)]
    pool = sorted(pool, key=lambda item: fingerprint([task, language, seed, item["item_id"]]))
    if len(pool) < shots or (not aside and len(usable) <= shots):
        left = "" if aside or not usable else ", one of which must be left to ask"
        raise ConfigError(
            f"{task}.{language}: {shots} demonstrations asked for, but only {len(pool)} rows with a known answer to "
            f"draw them from{left}; lower `shots`."
        )
    drawn = pool[:shots]
    return drawn, set() if aside else {item["item_id"] for item in drawn}


def _limit_order(item: dict) -> tuple[str, str]:
    """The order in which a limit takes items (data/items.py): the pool is in the set under any larger limit.

    So the same demonstrations are drawn with a limit, with another one, and without.
    """
    return fingerprint([0, item["cluster_id"] or f"item {item['item_id']}"]), item["item_id"]


def _can_be_shown(item: dict) -> bool:
    """An answer, and no more options than letters: one rule for every protocol, so that they share demonstrations."""
    return bool(answer(item)) and len(item["choices"]) != 1 and len(item["choices"]) <= 26
