"""Reading of user-written YAML files as plain Python values, with the line of each value.

ruamel.yaml reads them as YAML 1.2: `no`, `on` and `1:30` are text, and a duplicate key is an error. Dates are text too,
and keys are the text as written.
"""

import copy
import functools
from pathlib import Path

from ruamel.yaml import YAML, YAMLError
from ruamel.yaml.constructor import ConstructorError, DuplicateKeyError, SafeConstructor
from ruamel.yaml.nodes import MappingNode, SequenceNode
from ruamel.yaml.resolver import BaseResolver

from vernacular.core.errors import ConfigError, first_line
from vernacular.core.paths import display_path

MAX_REPEATED = 100_000  # values of a file that aliases repeat
MAX_BITS = 8_192  # of an integer, about 2,500 digits: Python prints up to 4,300
_TAG = "tag:yaml.org,2002:"
_PLAIN = (None, *(_TAG + name for name in ("null", "bool", "int", "float", "str", "seq", "map")))  # None: unknown tags


class _Constructor(SafeConstructor):
    """Constructor of JSON values, with keys as text."""

    yaml_constructors = {  # noqa: RUF012 (ruamel.yaml's interface)
        **{tag: SafeConstructor.yaml_constructors[tag] for tag in _PLAIN},
        _TAG + "timestamp": SafeConstructor.construct_yaml_str,
        _TAG + "value": SafeConstructor.construct_yaml_str,  # a single =
    }

    def construct_object(self, node, deep=False):
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int) and value.bit_length() > MAX_BITS:
                raise ValueError("an integer of more digits than can be printed")
            return value
        except (ValueError, LookupError) as error:  # for example, a number of 5000 digits, or !!bool x
            raise ConstructorError(None, None, first_line(error), node.start_mark) from None

    def construct_scalar(self, node):
        value = super().construct_scalar(node)
        if isinstance(value, str) and not value.isascii():  # JSON writes 🙂 as a surrogate pair, \ud83d\ude42
            value = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return value

    def flatten_mapping(self, node):
        super().flatten_mapping(node)
        for key, _ in node.value:
            key.ctag = BaseResolver.DEFAULT_SCALAR_TAG


class _Reader(YAML):
    def __init__(self):
        super().__init__(typ="safe", pure=True)
        self.Constructor = _Constructor

    def official_plug_ins(self):
        return []  # searching for plug-ins takes as long as reading a task file


def read(path) -> tuple[object, dict[tuple, int]]:
    """Return the content of a YAML file, and the line (from 1) of each key and list entry by its path: ("models", "x").

    Raises ConfigError, with file and line, if it is missing or not valid.
    """
    text = read_text(path)
    try:
        content, lines = _parse(text)
        return copy.deepcopy(content), dict(lines)
    except (YAMLError, RecursionError) as error:
        raise config_error(path, error) from None


@functools.lru_cache(maxsize=200)  # a pattern is read for each language, and takes as long as fifty copies
def _parse(text: str) -> tuple[object, dict[tuple, int]]:
    reader = _Reader()
    node = reader.compose(text)
    lines: dict[tuple, int] = {}
    _record_lines(node, (), lines, MAX_REPEATED + len(text))  # without aliases, a value has at least a character
    return node and reader.constructor.construct_document(node), lines


def read_text(path) -> str:
    """Return the text of a file, without a byte-order mark; raise ConfigError if it is missing or not UTF-8."""
    try:
        return Path(path).read_text("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{display_path(path)}: file not found.") from None
    except IsADirectoryError:
        raise ConfigError(f"{display_path(path)}: expected a YAML file, got a directory.") from None
    except OSError as error:
        raise ConfigError(f"{display_path(path)}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{display_path(path)}: not UTF-8 text (byte {error.start}); save it as UTF-8.") from None


def config_error(path, error: Exception) -> ConfigError:
    """Return the ConfigError for an error of a YAML library, ruamel.yaml or PyYAML."""
    mark = getattr(error, "problem_mark", None)
    location = display_path(path) + (f", line {mark.line + 1}" if mark else "")
    if isinstance(error, RecursionError):
        return ConfigError(f"{location}: not valid YAML (nested too deeply).")
    problem = str(getattr(error, "problem", None) or first_line(error))
    if isinstance(error, DuplicateKeyError):
        problem = problem.partition(" with value ")[0]  # a value may be a token
    hint = " Indent with spaces, not tabs." if "\\t" in problem else ""
    return ConfigError(f"{location}: not valid YAML ({problem[:200]}).{hint}")


def _record_lines(node, key_path: tuple, lines: dict[tuple, int], limit: int) -> None:
    """Record the line of each key and list entry under `node`, which is at the path `key_path`.

    Raises ConstructorError above a limit, which only aliases that contain aliases reach.
    """
    if len(lines) > limit:
        raise ConstructorError(None, None, f"aliases repeat more than {MAX_REPEATED:,} values", node.start_mark)
    if isinstance(node, MappingNode):
        entries = [(key.value, key, value) for key, value in node.value if isinstance(key.value, str)]
    elif isinstance(node, SequenceNode):
        entries = [(i, value, value) for i, value in enumerate(node.value)]
    else:
        return
    for step, start, value in entries:
        lines[(*key_path, step)] = start.start_mark.line + 1
        _record_lines(value, (*key_path, step), lines, limit)
