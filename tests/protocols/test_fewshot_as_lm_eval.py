"""Few-shot sampling as in lm-eval, compared with a reimplementation of its sampler."""

import random

import pytest
from vernacular.core.errors import ConfigError
from vernacular.protocols.fewshot import sample_as_lm_eval

POOL = list("abcdefgh")


def lm_eval_samples(rows, pool, n, *, exclude_self):
    """Apply ContextSampler.sample of lm_eval 0.4.13 to each row."""
    rng, samples = random.Random(1234), []
    for row in rows:
        if not exclude_self:
            samples.append(rng.sample(pool, n))
            continue
        examples = [example for example in rng.sample(pool, n + 1) if example != row][:n]
        if len(examples) < n:
            examples = rng.sample([example for example in pool if example != row], n)
        samples.append(examples)
    return samples


def sample(rows, pool, n, **options):
    kwargs = {"seed": 0, "use_first": False, "exclude_self": False, "task": "t.gl", **options}
    indices_by_row = sample_as_lm_eval(rows, pool, shots=n, **kwargs)
    return {row: [pool[i] for i in indices] for row, indices in indices_by_row.items()}


@pytest.mark.parametrize("exclude_self", [False, True])
@pytest.mark.parametrize("shots", [1, 3, 5])
def test_samples_match_lm_eval(shots, exclude_self):
    examples = sample(dict(enumerate(POOL)), POOL, shots, exclude_self=exclude_self)
    assert list(examples.values()) == lm_eval_samples(POOL, POOL, shots, exclude_self=exclude_self)


def test_duplicate_rows_trigger_resampling():
    pool = list("aaabcd")
    examples = sample(dict(enumerate(pool)), pool, 3, exclude_self=True)
    assert list(examples.values()) == lm_eval_samples(pool, pool, 3, exclude_self=True)
    assert all(row not in row_examples for row, row_examples in zip(pool, examples.values(), strict=True))


@pytest.mark.parametrize("exclude_self", [False, True])
def test_examples_are_independent_of_skipped_rows(exclude_self):
    rows = dict(enumerate(POOL))
    examples = sample({5: "f", 2: "c"}, POOL, 2, exclude_self=exclude_self)
    all_examples = sample(rows, POOL, 2, exclude_self=exclude_self)
    assert examples == {row: all_examples[row] for row in (2, 5)}


def test_first_n_excludes_the_row_itself():
    examples = sample(dict(enumerate(POOL)), POOL, 2, use_first=True, exclude_self=True)
    assert (examples[0], examples[1], examples[5]) == (["b", "c"], ["a", "c"], ["a", "b"])


def test_seed_changes_the_sample():
    rows = dict(enumerate(POOL))
    assert sample(rows, POOL, 3, seed=1) != sample(rows, POOL, 3)


def test_too_small_pool_raises_config_error():
    with pytest.raises(ConfigError, match=r"t\.gl: expected at least 4 rows for shots: 3, got 3"):
        sample({0: "a"}, list("abc"), 3, exclude_self=True)
