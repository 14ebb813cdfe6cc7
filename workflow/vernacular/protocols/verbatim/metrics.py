"""verbatim_match: lm-eval's exact_match, for items with the prompt text of that tool (data/lm_eval).

It compares the text generated before the first stop string, including surrounding whitespace, with the correct answers,
character by character, after the filters and with the options that the task file specifies.
"""

import json
import re
import string

from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import extra
from vernacular.types import Item

METRICS = [
    Metric("verbatim_match", "share", True, "similarity", proportion=True,
           about="exact match of the response, with the options of the task file (lm-eval's exact_match)"),
]  # fmt: skip

_FILTERS = {"remove_whitespace": str.lstrip, "lowercase": str.lower, "uppercase": str.upper}


def values(item: Item, raw: str | None) -> dict[str, float]:
    """Return {"verbatim_match": 0 or 1} for an item with lm-eval's prompt text and a known answer, else {}."""
    known = extra(item)
    if raw is None or "ask" not in known or "targets" not in known:
        return {}
    ask = json.loads(known["ask"])
    given = cut(raw, ask["until"])
    for name in ask["filters"]:
        given = _FILTERS[name](given)
    given = compared(given, ask["exact"])
    return {
        "verbatim_match": float(any(given == compared(right, ask["exact"]) for right in json.loads(known["targets"])))
    }


def cut(raw: str, until: list[str]) -> str:
    """Return the text before the first stop string.

    >>> cut(" 42\\nQ: next", ["\\n"])
    ' 42'
    """
    for stop in until:
        raw = raw.split(stop)[0]
    return raw


def compared(text: str, options: dict) -> str:
    """Return `text` without the parts that the options of exact_match ignore (as in Hugging Face's `evaluate`).

    >>> compared("Yes, 2!", {"ignore_case": True, "ignore_punctuation": True, "ignore_numbers": True})
    'yes '
    """
    for pattern in options.get("regexes_to_ignore") or ():
        text = re.sub(pattern, "", text)
    if options.get("ignore_case"):
        text = text.lower()
    for name, letters in (("ignore_punctuation", string.punctuation), ("ignore_numbers", string.digits)):
        if options.get(name):
            text = text.translate(str.maketrans("", "", letters))
    return text
