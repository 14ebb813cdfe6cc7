"""Drawing demonstrations: once per (task, language, shots, seed), whatever the items' order or the other languages.

They come from rows the data set sets aside (`demonstration`), else from a pool of evaluated items, and are then left
out of the evaluation. Draws go by hash, so more shots add demonstrations and change none.
"""

from vernacular.errors import ConfigError
from vernacular.fingerprint import fingerprint
from vernacular.requests.prompts import answer

# Held-out demonstrations are drawn from the first POOL items by a hash without the seed: where a limit keeps these
# items (as rows with `demonstration`), the same demonstrations are drawn with the limit and without.
POOL = 64


def draw(items: list[dict], *, task: str, language: str, shots: int, seed: int) -> tuple[list[dict], set[str]]:
    """(demonstrations in prompt order, ids of evaluated items among them).

    Raises ConfigError where fewer than `shots` rows have an answer to show.
    """
    if not shots:
        return [], set()
    usable = [item for item in items if _can_be_shown(item)]
    aside = [item for item in usable if item["demonstration"]]
    pool = aside or sorted(usable, key=lambda item: fingerprint([task, language, item["item_id"]]))[:POOL]
    pool = sorted(pool, key=lambda item: fingerprint([task, language, seed, item["item_id"]]))
    if len(pool) < shots or (not aside and len(usable) <= shots):
        raise ConfigError(
            f"{task}.{language}: {shots} demonstrations asked for, but only {len(pool)} rows with a known answer to "
            f"draw them from; lower `shots`."
        )
    drawn = pool[:shots]
    return drawn, set() if aside else {item["item_id"] for item in drawn}


def _can_be_shown(item: dict) -> bool:
    """An answer, and no more options than letters: one rule for every protocol, so that they share demonstrations."""
    return bool(answer(item)) and len(item["choices"]) != 1 and len(item["choices"]) <= 26
