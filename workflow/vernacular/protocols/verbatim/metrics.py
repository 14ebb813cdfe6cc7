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


def match_values(item: Item, raw_output: str | None) -> dict[str, float]:
    """Return {"verbatim_match": 0 or 1} for an item with lm-eval's prompt text and a known answer, else {}."""
    fields = extra(item)
    if raw_output is None or "settings" not in fields or "targets" not in fields:
        return {}
    settings = json.loads(fields["settings"])
    text = truncate_at_stop(raw_output, settings["until"])
    for name in settings["filters"]:
        text = _FILTERS[name](text)
    text = remove_ignored(text, settings["exact"])
    targets = json.loads(fields["targets"])
    return {"verbatim_match": float(any(text == remove_ignored(target, settings["exact"]) for target in targets))}


def truncate_at_stop(text: str, stops: list[str]) -> str:
    """Return the text before the first stop string.

    >>> truncate_at_stop(" 42\\nQ: next", ["\\n"])
    ' 42'
    """
    for stop in stops:
        text = text.split(stop)[0]
    return text


def remove_ignored(text: str, options: dict) -> str:
    """Return `text` without the parts that the options of exact_match ignore (as in Hugging Face's `evaluate`).

    >>> remove_ignored("Yes, 2!", {"ignore_case": True, "ignore_punctuation": True, "ignore_numbers": True})
    'yes '
    """
    for pattern in options.get("regexes_to_ignore") or ():
        text = re.sub(pattern, "", text)
    if options.get("ignore_case"):
        text = text.lower()
    for name, characters in (("ignore_punctuation", string.punctuation), ("ignore_numbers", string.digits)):
        if options.get(name):
            text = text.translate(str.maketrans("", "", characters))
    return text
