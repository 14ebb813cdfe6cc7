"""Which rows lm-eval shows before each evaluated row (lm_eval/api/samplers.py, 0.4.13), so that ours are the same.

Theirs has one stream of random numbers for a whole task, which every evaluated row draws from in turn, so a row's
examples depend on its place in the split. A run of theirs that is limited to the first rows draws as one that is not;
one with --samples does not, and agrees with no other run.
"""

import random

from vernacular.core.errors import ConfigError

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
