"""One hash for values and files."""

import hashlib
import json


def fingerprint(value) -> str:
    """sha256 (hex) of a JSON-like value; dict order does not matter, list order does.

    >>> fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # surrogatepass: a lone surrogate in a data set is odd text, not a reason to stop
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_fingerprint(path) -> str:
    """sha256 (hex) of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
