"""Pieces: the small scripts that carry the page's data, since a page opened from a disk may not fetch files.

A piece is `data/{name}.js` and calls `vernacular.piece("{name}", …)`. Its content is JSON in which nothing can end the
script or start another, whatever a data set says. Names of pieces are ours, made of numbers; texts never become names
or keys (a key `__proto__` in an object literal would not be data), they stand in arrays and as values.
"""

import json
import math
import re
from pathlib import Path

from vernacular.core.errors import writing

# "<" could end a script element, "&" start an entity in XHTML, U+2028 and U+2029 end a line in old engines, and half a
# surrogate pair is not UTF-8. They stand inside JSON strings alone, where all may be escaped.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def script_json(value) -> str:
    """`value` as JSON that may stand in a script; raises ValueError on NaN and infinity, which JSON does not have.

    >>> script_json(["</script>", "شاي"])
    '["\\\\u003c/script\\\\u003e","شاي"]'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def write_piece(folder: Path, name: str, value) -> int:
    """Write the piece `name` below `folder`/data; returns its size in bytes."""
    path = folder / "data" / f"{name}.js"
    content = f'vernacular.piece("{name}",{script_json(value)});\n'.encode()
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return len(content)


def short(number, digits: int = 5):
    """`number` at so many significant digits, for showing; None where there is none (null, NaN, infinite).

    >>> short(0.123456789), short(float("nan")), short(None), short(12)
    (0.12346, None, None, 12)
    """
    if number is None or not math.isfinite(number):
        return None
    return number if isinstance(number, int) else float(f"%.{digits}g" % number)


def shorts(numbers, digits: int = 5) -> list | None:
    """`short` of each; None where there is no list at all."""
    if numbers is None:
        return None
    form = f"%.{digits}g"  # a page holds millions of numbers: all of a list at once, without a call for each
    return [
        None if number is None or not -math.inf < number < math.inf  # false of NaN too
        else number if isinstance(number, int) else float(form % number)
        for number in numbers
    ]  # fmt: skip
