"""Few-shot examples: sampled once per (task, language, shots, seed), or for each row as in lm-eval.

They are sampled from rows that the dataset reserves for this purpose (`few_shot`), else from a pool of evaluated
items, which are then excluded from the evaluation. Sampling is by hash, so that a larger number of shots adds examples
and changes none. `sample_as_lm_eval` follows lm_eval/api/samplers.py (0.4.13): it uses one stream of random numbers, so
that a row's examples depend on its index.
"""

import random

from vernacular.core.errors import ConfigError, counted
from vernacular.core.fingerprint import fingerprint
from vernacular.protocols.prompts import answer
from vernacular.types import Item

POOL = 32  # items from which held-out examples are sampled


def sample_examples(
    items: list[Item], *, task: str, language: str, shots: int, seed: int
) -> tuple[list[dict], set[str]]:
    """Return (few-shot examples in prompt order, IDs of the evaluated items among them).

    Raises ConfigError if fewer than `shots` rows have a known answer.
    """
    if not shots:
        return [], set()
    usable = [item for item in items if _can_be_shown(item)]
    aside = [item for item in usable if item["few_shot"]]
    pool = aside or sorted(usable, key=_limit_order)[: max(POOL, shots)]
    pool = sorted(pool, key=lambda item: fingerprint([task, language, seed, item["item_id"]]))
    if len(pool) < shots or (not aside and len(usable) <= shots):
        left = "" if aside or not usable else ", and at least one item to evaluate"
        raise ConfigError(
            f"{task}.{language}: expected at least {counted(shots, 'row')} with a known answer as few-shot "
            f"examples{left}, got {len(pool)}. Set a smaller value of shots."
        )
    drawn = pool[:shots]
    return drawn, set() if aside else {item["item_id"] for item in drawn}


def _limit_order(item: Item) -> tuple[str, str]:
    """Return the sort key by which a limit selects items (data/items.py).

    The pool is part of the dataset under any larger limit, so that the same examples are sampled with and without one.
    """
    return fingerprint([0, item["cluster_id"] or f"item {item['item_id']}"]), item["item_id"]


def _can_be_shown(item: Item) -> bool:
    """Return whether an item has an answer and at most 26 options: one rule, so that all protocols share examples."""
    return bool(answer(item)) and len(item["choices"]) != 1 and len(item["choices"]) <= 26


SEED = 1234  # default of lm-eval's --seed for few-shot sampling; seed 0 of Vernacular


def sample_as_lm_eval(
    rows: dict[int, str], pool: list[str], *, shots: int, seed: int, first: bool, exclude: bool, task: str
) -> dict[int, list[int]]:
    """Return {index of an evaluated row in its split: indices in the pool of its few-shot examples, in order}.

    Args:
        rows: Hash of each evaluated row, by its index.
        pool: Hashes of the rows in the pool, in order.
        first: Use the first rows of the pool for every evaluated row.
        exclude: A row is not its own example; one more row is sampled, in case it is among them.

    Raises:
        ConfigError: The pool is too small.
    """
    if not shots or not rows:
        return {place: [] for place in rows}
    needed = shots + (exclude and not first)
    if len(pool) < needed:
        raise ConfigError(f"{task}: expected at least {counted(needed, 'row')} for shots: {shots}, got {len(pool)}.")
    stream = random.Random(SEED + seed)
    every = range(len(pool))
    drawn = {}
    for place in range(max(rows) + 1):
        # a dropped row consumes random numbers, too; if a row may be its own example, its hash is in the pool
        own = rows.get(place, pool[place] if place < len(pool) else None) if exclude else None
        if first:
            found = [at for at in every if own is None or pool[at] != own]
        else:
            found = [at for at in stream.sample(every, needed) if not exclude or pool[at] != own]
            if len(found) < shots:  # several rows are equal
                found = stream.sample([at for at in every if pool[at] != own], shots)
        if len(found) < shots:
            raise ConfigError(
                f"{task}: expected {counted(shots, 'row')} different from the evaluated one, got {len(found)}."
            )
        if place in rows:
            drawn[place] = found[:shots]
    return drawn
