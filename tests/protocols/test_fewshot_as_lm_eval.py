"""The rows that lm-eval would show, against its sampler's own rules written out as it has them."""

import random

import pytest
from vernacular.core.errors import ConfigError
from vernacular.protocols.fewshot import sample_as_lm_eval as draw

POOL = list("abcdefgh")


def theirs(rows, pool, n, *, exclude):
    """ContextSampler.sample of lm_eval 0.4.13 for every row in turn."""
    stream, shown = random.Random(1234), []
    for row in rows:
        if not exclude:
            shown.append(stream.sample(pool, n))
            continue
        found = [one for one in stream.sample(pool, n + 1) if one != row][:n]
        if len(found) < n:
            found = stream.sample([one for one in pool if one != row], n)
        shown.append(found)
    return shown


def ours(rows, pool, n, **options):
    given = {"seed": 0, "first": False, "exclude": False, "task": "t.gl", **options}
    drawn = draw(rows, pool, shots=n, **given)
    return {place: [pool[at] for at in places] for place, places in drawn.items()}


@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("shots", [1, 3, 5])
def test_the_same_rows_are_drawn_in_the_same_order(shots, exclude):
    found = ours(dict(enumerate(POOL)), POOL, shots, exclude=exclude)
    assert list(found.values()) == theirs(POOL, POOL, shots, exclude=exclude)


def test_rows_that_are_alike_make_it_draw_again():
    pool = list("aaabcd")
    found = ours(dict(enumerate(pool)), pool, 3, exclude=True)
    assert list(found.values()) == theirs(pool, pool, 3, exclude=True)
    assert all(row not in shown for row, shown in zip(pool, found.values(), strict=True))


@pytest.mark.parametrize("exclude", [False, True])
def test_a_row_is_shown_the_same_examples_when_others_are_left_out(exclude):
    rows = dict(enumerate(POOL))
    found = ours({5: "f", 2: "c"}, POOL, 2, exclude=exclude)
    assert found == {place: shown for place, shown in ours(rows, POOL, 2, exclude=exclude).items() if place in (2, 5)}


def test_first_n_shows_the_first_rows_less_the_row_itself():
    found = ours(dict(enumerate(POOL)), POOL, 2, first=True, exclude=True)
    assert (found[0], found[1], found[5]) == (["b", "c"], ["a", "c"], ["a", "b"])


def test_another_seed_is_another_draw():
    rows = dict(enumerate(POOL))
    assert ours(rows, POOL, 3, seed=1) != ours(rows, POOL, 3)


def test_too_small_a_pool_is_said():
    with pytest.raises(ConfigError, match=r"t\.gl: expected at least 4 rows for shots: 3, got 3"):
        ours({0: "a"}, list("abc"), 3, exclude=True)
