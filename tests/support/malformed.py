"""What files and answers of others may contain, for all readers of them: names, values, texts and bytes."""

import random

from hypothesis import strategies as st

NAMES = [
    "x/../../../../escaped", "../escaped", "/etc/escaped", "..", ".", "", " ", "a\0b", "a\nb", "a\r", "a\x1b[31mb",
    "a\ud800b", "a\u202eb", "a\u2066b", "a\u2028b", "a\u200bb", "{model}", "{}", "null", "nul", "COM1.txt", "-rf",
    "--", ".hidden", "x.", "x ", "n" * 300, "n" * 1_000_000, "é" * 200, "<script>alert(1)</script>", "=cmd()",
    "C:\\x", "a:b", "PLAIN", "plain (lab)", "__proto__", "%s%n", "$(touch escaped)", "`touch escaped`", "'; drop",
]  # fmt: skip
# values that a typo, a merge conflict or a hostile file may contain
VALUES = [
    None, True, False, 0, -1, 1, 0.5, 5.0, 10**30, -(10**30), 2**70, 10**400, 1e308, -1e308,
    float("nan"), float("inf"), float("-inf"), "1", "5", "NaN", "nan", "Z", "no", "x", "/", "~nobody/x", "a/b", "a b",
    "a\n", "\t", "\0", "\x1b[31m", "\u202etxt", "né", "ne\u0301", "🙂", "\ud800", "{x}", "{{x}}", "{input}", "$(id)",
    "'; id", "%s", "*", "[", "x" * 300, "x" * 200_000, "https://me:s3cret@127.0.0.1/x", "hf_" + "s3cret" * 6, *NAMES,
    [], [[]], [None], ["x"], ["a", {"b": 1}], [1, 1], [float("nan")], [["x"] * 3] * 3,
    {}, {"x": 1}, {"": ""}, {"": {}}, {"__class__": 1}, {"text": ["x"]}, {"a\nb": 1}, {"\0": None}, {"x" * 300: {}},
    {"a": {"a": {"a": []}}},
]  # fmt: skip
NESTED = "[" * 100_000 + "]" * 100_000  # deeper than a parser recurses

_FRAGMENTS = ["\n", "\r", "\u2028", " ", ":", "RESPOST", "RESPOSTA: ", "CONTINUAC", "RESUM", "3:1", "a", "\0", "e\u0301",
              "👩‍👩‍👧", "\u202e", "مرحبا", "{question}", ".*", "\\"]  # fmt: skip
# what a model may generate
responses = st.lists(st.sampled_from(_FRAGMENTS) | st.characters(exclude_categories=["Cs"]), max_size=14).map("".join)

HUGE = (
    1_000_000  # characters of an output that repeats a fragment without end, for parsers whose run time must be linear
)
REPEATED_FRAGMENTS = ["x", ":", "RESPOST", "RESPOSTA: ", "\n", " ", " \n", "\t\v", "\u2028", "a b ", "e\u0301", "A:", "👩‍👩‍👧",
                      "...", "١"]  # fmt: skip

_BYTES = [b"\0", b"\r", b"\n", b'"', b"'", b",", b"\t", b"[", b"]", b"{", b"}", b"\xff", b"\xed\xa0\x80", b"\\ud800",
          b"\xe2\x80\xa8", b"nan", b"1e999", b"\x1f\x8b", b"\xef\xbb\xbf", b"null", b"-1"]  # fmt: skip


@st.composite
def damaged_bytes(draw, valid: bytes) -> bytes:
    """Return the bytes of a valid file with parts removed, exchanged or inserted, or any bytes."""
    data = draw(st.just(valid) | st.binary(max_size=60))
    for _ in range(draw(st.integers(0, 6))):
        start, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        inserted = data[:start] + draw(st.sampled_from(_BYTES)) + data[start:]
        data = draw(st.sampled_from([data[:start] + data[end:], data[:end] + data[start:], inserted]))
    return data


def change(value, rng: random.Random) -> str:
    """Replace, rename or delete a part of a JSON value, at a depth drawn at random."""
    path = []
    while isinstance(value, dict | list) and value:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        path.append(str(key))
        if not isinstance(value[key], dict | list) or not value[key] or rng.random() < 0.15:
            if rng.random() < 0.2:
                del value[key]
                return f"without {'.'.join(path)}"
            value[key] = rng.choice(VALUES)
            return f"{'.'.join(path)} = {str(value[key])[:40]!r}"
        value = value[key]
    return "unchanged"
