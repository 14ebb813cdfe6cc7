"""Data files ("pieces") of the report: scripts, since a page opened from disk may not fetch other files.

A piece is `data/{name}.js` and calls `vernacular.piece("{name}", …)`. Its content is JSON, escaped so that no text of a
dataset can end the script or start another. Names of pieces consist of fixed words and numbers; texts are array
elements and values, never names or keys (a key `__proto__` in an object literal would not be data).

`js/fields.js` names the fields of what the pieces carry, for this package and for the views: rows are arrays, written
from the named tuples of `Row`, and records are objects, checked by `record`.
"""

import json
import math
import re
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

from vernacular.core.errors import writing
from vernacular.core.paths import WORKFLOW

ASSETS = WORKFLOW / "report"

# "<" could end a script element, "&" start an entity in XHTML, U+2028 and U+2029 end a line in old engines, and lone
# surrogates are not UTF-8. They only occur inside JSON strings, where any character may be escaped.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def _read_fields() -> dict[str, dict[str, list[str]]]:
    """Return the fields of rows and records; `fields.js` is JSON with comments, inside an assignment."""
    text = (ASSETS / "js" / "fields.js").read_text("utf-8")
    content = text[text.index("({") + 1 : text.rindex("})") + 1]
    return json.loads(re.sub(r"^\s*//.*$", "", content, flags=re.MULTILINE))


def _row_class(name: str, fields: list[str]) -> type:
    row_class = namedtuple(name, fields, module=__name__)
    row_class.__qualname__ = f"Row.{name}"  # where pickle finds it
    return row_class


FIELDS = _read_fields()
Row = SimpleNamespace(**{name: _row_class(name, fields) for name, fields in FIELDS["rows"].items()})
_KNOWN = {kind: {name.removesuffix("?") for name in names} for kind, names in FIELDS["records"].items()}
_REQUIRED = {kind: {name for name in names if not name.endswith("?")} for kind, names in FIELDS["records"].items()}


def record(kind: str, values: dict) -> dict:
    """Return `values`, the record of a piece; raises KeyError unless its fields are those that `fields.js` names.

    >>> record("Categories", {"names": [], "row": []})
    Traceback (most recent call last):
    KeyError: "Categories: fields that fields.js does not name: ['row']; missing: ['rows']"
    """
    unknown, missing = values.keys() - _KNOWN[kind], _REQUIRED[kind] - values.keys()
    if unknown or missing:
        raise KeyError(f"{kind}: fields that fields.js does not name: {sorted(unknown)}; missing: {sorted(missing)}")
    return values


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


DIGITS = 9  # of numbers in the data files; views round to about four (format.js), and twice rounded may be one off


def round_significant(value, digits: int = DIGITS):
    """Round a float to `digits` significant digits, to save space; None if it is NaN or infinite.

    Values of other types, such as texts and integers, are unchanged.

    >>> round_significant(0.1234567890123), round_significant(float("nan")), round_significant("a")
    (0.123456789, None, 'a')
    """
    if not isinstance(value, float):
        return value
    return float(f"%.{digits}g" % value) if math.isfinite(value) else None


INTERVAL = {"value": "value", "low": "ci_low", "high": "ci_high"}  # column by field


def rounded(row: dict, columns: dict[str, str]) -> dict:
    """Return columns of a table's row by the names of fields, floats rounded; columns: by field."""
    return {field: round_significant(row[column]) for field, column in columns.items()}


def round_all(numbers, digits: int = DIGITS) -> list | None:
    """Apply `round_significant` to each number; None if there is no list."""
    if numbers is None:
        return None
    number_format = f"%.{digits}g"  # a report holds millions of numbers: avoid a function call per number
    return [
        None if number is None or not -math.inf < number < math.inf  # False for NaN too
        else number if isinstance(number, int) else float(number_format % number)
        for number in numbers
    ]  # fmt: skip
