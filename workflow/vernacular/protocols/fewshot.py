"""Few-shot examples: sampled once per (task, language, shots, seed), or for each row as in lm-eval.

They are sampled from rows that the dataset reserves for this purpose (`few_shot`), else from a pool of evaluated
items, which are then excluded from the evaluation. Sampling is by hash, so that a larger number of shots adds examples
and changes none. `sample_as_lm_eval` follows lm_eval/api/samplers.py (0.4.13): it uses one stream of random numbers, so
that a row's examples depend on its index.
"""

import random

from vernacular.core.errors import ConfigError, format_count
from vernacular.core.fingerprint import fingerprint
from vernacular.protocols.prompts import gold_text
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
    usable = [item for item in items if _is_usable(item)]
    reserved = [item for item in usable if item["few_shot"]]
    pool = reserved or sorted(usable, key=_limit_order)[: max(POOL, shots)]
    pool = sorted(pool, key=lambda item: fingerprint([task, language, seed, item["item_id"]]))
    if len(pool) < shots or (not reserved and len(usable) <= shots):
        suffix = "" if reserved or not usable else ", and at least one item to evaluate"
        raise ConfigError(
            f"{task}.{language}: expected at least {format_count(shots, 'row')} with a known answer as few-shot "
            f"examples{suffix}, got {len(pool)}. Set a smaller value of shots."
        )
    examples = pool[:shots]
    return examples, set() if reserved else {item["item_id"] for item in examples}


def _limit_order(item: Item) -> tuple[str, str]:
    """Return the sort key by which a limit selects items (data/items.py).

    The pool is part of the dataset under any larger limit, so that the same examples are sampled with and without one.
    """
    return fingerprint([0, item["cluster_id"] or f"item {item['item_id']}"]), item["item_id"]


def _is_usable(item: Item) -> bool:
    """Return whether an item has an answer and at most 26 options: one rule, so that all protocols share examples."""
    return bool(gold_text(item)) and len(item["choices"]) != 1 and len(item["choices"]) <= 26


SEED = 1234  # default of lm-eval's --seed for few-shot sampling; seed 0 of Vernacular


def sample_as_lm_eval(
    rows: dict[int, str], pool: list[str], *, shots: int, seed: int, use_first: bool, exclude_self: bool, task: str
) -> dict[int, list[int]]:
    """Return {index of an evaluated row in its split: indices in the pool of its few-shot examples, in order}.

    Args:
        rows: Hash of each evaluated row, by its index.
        pool: Hashes of the rows in the pool, in order.
        use_first: Use the first rows of the pool for every evaluated row.
        exclude_self: A row is not its own example; one more row is sampled, in case it is among them.

    Raises:
        ConfigError: The pool is too small.
    """
    if not shots or not rows:
        return {index: [] for index in rows}
    n_required = shots + (exclude_self and not use_first)
    if len(pool) < n_required:
        raise ConfigError(
            f"{task}: expected at least {format_count(n_required, 'row')} for shots: {shots}, got {len(pool)}."
        )
    rng = random.Random(SEED + seed)
    pool_indices = range(len(pool))
    examples = {}
    for index in range(max(rows) + 1):
        # a dropped row consumes random numbers, too; if a row may be its own example, its hash is in the pool
        own_hash = rows.get(index, pool[index] if index < len(pool) else None) if exclude_self else None
        if use_first:
            sample = [i for i in pool_indices if own_hash is None or pool[i] != own_hash]
        else:
            sample = [i for i in rng.sample(pool_indices, n_required) if not exclude_self or pool[i] != own_hash]
            if len(sample) < shots:  # several rows are equal
                sample = rng.sample([i for i in pool_indices if pool[i] != own_hash], shots)
        if len(sample) < shots:
            raise ConfigError(
                f"{task}: expected {format_count(shots, 'row')} different from the evaluated one, got {len(sample)}."
            )
        if index in rows:
            examples[index] = sample[:shots]
    return examples
