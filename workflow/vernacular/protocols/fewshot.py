"""Few-shot examples: once per (task, language, shots, seed), or before each row as lm-eval samples them.

They come from rows the dataset sets aside (`demonstration`), else from a pool of evaluated items, and are then left
out of the evaluation. Draws go by hash, so more shots add examples and change none. `sample_as_lm_eval` follows
lm_eval/api/samplers.py (0.4.13), whose one stream of random numbers makes a row's examples depend on its place.
"""

import random

from vernacular.core.errors import ConfigError
from vernacular.core.fingerprint import fingerprint
from vernacular.protocols.prompts import answer
from vernacular.types import Item

POOL = 32  # items that held-out demonstrations are drawn from


def sample_examples(
    items: list[Item], *, task: str, language: str, shots: int, seed: int
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


def _limit_order(item: Item) -> tuple[str, str]:
    """The order in which a limit takes items (data/items.py): the pool is in the set under any larger limit.

    So the same demonstrations are drawn with a limit, with another one, and without.
    """
    return fingerprint([0, item["cluster_id"] or f"item {item['item_id']}"]), item["item_id"]


def _can_be_shown(item: Item) -> bool:
    """An answer, and no more options than letters: one rule for every protocol, so that they share demonstrations."""
    return bool(answer(item)) and len(item["choices"]) != 1 and len(item["choices"]) <= 26


SEED = 1234  # their --seed for few-shot sampling, where none is given; seed 0 of ours


def sample_as_lm_eval(
    rows: dict[int, str], pool: list[str], *, shots: int, seed: int, first: bool, exclude: bool, task: str
) -> dict[int, list[int]]:
    """{place of an evaluated row in its split: places in the pool of the rows shown before it, in order}.

    `rows` are hashes by place, `pool` hashes in order; `exclude`: an evaluated row is not shown to itself, and one more
    is drawn in case it is. `first`: the first rows, for all alike. Raises ConfigError where the pool is too small.
    """
    if not shots or not rows:
        return {place: [] for place in rows}
    needed = shots + (exclude and not first)
    if len(pool) < needed:
        raise ConfigError(f"{task}: {shots} solved examples need {needed} rows to draw from, found {len(pool)}.")
    stream = random.Random(SEED + seed)
    every = range(len(pool))
    drawn = {}
    for place in range(max(rows) + 1):
        # a row that was left out has its turn too; where a row may meet itself, its hash stands in the pool
        own = rows.get(place, pool[place] if place < len(pool) else None) if exclude else None
        if first:
            found = [at for at in every if own is None or pool[at] != own]
        else:
            found = [at for at in stream.sample(every, needed) if not exclude or pool[at] != own]
            if len(found) < shots:  # several rows are alike
                found = stream.sample([at for at in every if pool[at] != own], shots)
        if len(found) < shots:
            raise ConfigError(f"{task}: {shots} solved examples asked for, but only {len(found)} rows differ from it.")
        if place in rows:
            drawn[place] = found[:shots]
    return drawn
