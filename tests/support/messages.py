"""Check of what an error message states, independent of its wording."""


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
