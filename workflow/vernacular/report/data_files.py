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
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def write_data_file(directory: Path, name: str, value) -> int:
    """Write the piece `name` below `directory`/data; return its size in bytes."""
    path = directory / "data" / f"{name}.js"
    content = f'vernacular.piece("{name}",{script_json(value)});\n'.encode()
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return len(content)


def round_significant(number, digits: int = 5):
    """Round `number` to `digits` significant digits for display; None if it is null, NaN or infinite.

    >>> round_significant(0.123456789), round_significant(float("nan")), round_significant(None), round_significant(12)
    (0.12346, None, None, 12)
    """
    if number is None or not math.isfinite(number):
        return None
    return number if isinstance(number, int) else float(f"%.{digits}g" % number)


def round_all(numbers, digits: int = 5) -> list | None:
    """Apply `round_significant` to each number; None if there is no list."""
    if numbers is None:
        return None
    number_format = f"%.{digits}g"  # a report holds millions of numbers: avoid a function call per number
    return [
        None if number is None or not -math.inf < number < math.inf  # False for NaN too
        else number if isinstance(number, int) else float(number_format % number)
        for number in numbers
    ]  # fmt: skip
