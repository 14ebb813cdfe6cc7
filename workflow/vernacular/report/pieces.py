"""Data files ("pieces") of the report: scripts, since a page opened from disk may not fetch other files.

A piece is `data/{name}.js` and calls `vernacular.piece("{name}", …)`. Its content is JSON, escaped so that no text of a
dataset can end the script or start another. Names of pieces consist of fixed words and numbers; texts are array
elements and values, never names or keys (a key `__proto__` in an object literal would not be data).
"""

import json
import math
import re
from pathlib import Path

from vernacular.core.errors import writing

# "<" could end a script element, "&" start an entity in XHTML, U+2028 and U+2029 end a line in old engines, and lone
# surrogates are not UTF-8. They only occur inside JSON strings, where any character may be escaped.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def script_json(value) -> str:
    """Return `value` as JSON that is safe inside a script; raises ValueError on NaN and infinity, which JSON lacks.

    >>> script_json(["</script>", "شاي"])
    '["\\\\u003c/script\\\\u003e","شاي"]'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def write_piece(folder: Path, name: str, value) -> int:
    """Write the piece `name` below `folder`/data; return its size in bytes."""
    path = folder / "data" / f"{name}.js"
    content = f'vernacular.piece("{name}",{script_json(value)});\n'.encode()
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return len(content)


def short(number, digits: int = 5):
    """Round `number` to `digits` significant digits for display; None if it is null, NaN or infinite.

    >>> short(0.123456789), short(float("nan")), short(None), short(12)
    (0.12346, None, None, 12)
    """
    if number is None or not math.isfinite(number):
        return None
    return number if isinstance(number, int) else float(f"%.{digits}g" % number)


def shorts(numbers, digits: int = 5) -> list | None:
    """Apply `short` to each number; None if there is no list."""
    if numbers is None:
        return None
    form = f"%.{digits}g"  # a report holds millions of numbers: avoid a function call per number
    return [
        None if number is None or not -math.inf < number < math.inf  # False for NaN too
        else number if isinstance(number, int) else float(form % number)
        for number in numbers
    ]  # fmt: skip
