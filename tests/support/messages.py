"""Checks of what an error message states, independent of its wording."""

import itertools


def assert_states(message: str, *parts: str) -> None:
    """Check that a message of one or two lines contains all parts (location, key, found value, reason) in this order.

    Each part is one word, name, number or short term, so that rewording a message does not change its test.
    """
    text = str(message)
    assert 1 <= len(text.strip().splitlines()) <= 2, text
    start = 0
    for part in parts:
        start = text.find(part, start)
        assert start >= 0, f"{part!r} not found in this order in: {text}"
        start += len(part)


def assert_one_problem_per_line(message: str, location: str) -> None:
    """Check that problems are distinct, and that each is a line that names `location`, and at most one more."""
    lines = message.strip().splitlines()
    assert len(lines) == len(set(lines)), message
    assert location in lines[0], message
    assert not any(location not in a + b for a, b in itertools.pairwise(lines)), message
