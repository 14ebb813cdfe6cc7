"""YAML as we understand it: the core schema of YAML 1.2 and no more, with the line of every value.

`no` is the Norwegian language, 1:30 and 2024-01-01 are text, 010 is ten; a key is text, as it is written. What cannot
be meant (a key given twice, an anchor inside itself, a tag) or would fill memory (aliases of aliases) is an error.
"""

import re

import yaml
from yaml.constructor import BaseConstructor, ConstructorError

_MOST_REPEATED = 100_000  # values that aliases (*name) may repeat
_DEEPEST = 100  # nested lists and mappings
_TAG = "tag:yaml.org,2002:"


class Refused(ConstructorError):
    """YAML by the rules, and yet a mistake; `problem` is the sentence."""


def load(text: str) -> tuple[object, dict[tuple, int]]:
    """The only document in `text`, and the line (from 1) of every key and list entry by its path: ("models", "x").

    Raises Refused, any other yaml.YAMLError, or RecursionError for what is nested too deeply to be parsed.
    """
    loader = Loader(text)
    node = loader.get_single_node()
    if node is None:
        return None, {}
    check_size(node)
    walk = _Walk(loader)
    walk.note(node, ())
    return loader.construct_document(node), walk.lines


def check_size(node) -> None:
    """Raise Refused for an anchor that contains itself, for aliases of aliases of aliases, and for endless nesting."""
    met: set[int] = set()  # nodes: one that is met again is repeated by an alias
    repeated = 0

    def visit(node, around: tuple) -> None:
        nonlocal repeated
        if any(node is other for other in around):
            raise _refused(node, "an anchor that contains itself")
        if len(around) > _DEEPEST:
            raise _refused(node, "nested too deeply")
        repeated += id(node) in met
        met.add(id(node))
        if repeated > _MOST_REPEATED:
            raise _refused(node, f"its aliases (*name) repeat more than {_MOST_REPEATED} values")
        for inner in node.value if isinstance(node, yaml.CollectionNode) else ():
            for each in inner if isinstance(inner, tuple) else (inner,):
                visit(each, (*around, node))

    visit(node, ())


class Loader(yaml.SafeLoader):
    """SafeLoader with the core schema of YAML 1.2, and keys that are text."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 (PyYAML's own way to set them)

    def construct_mapping(self, node, deep=False):
        self.flatten_mapping(node)
        for key, _ in node.value:
            key.tag = _TAG + "str"
        return BaseConstructor.construct_mapping(self, node, deep)

    def construct_scalar(self, node):
        value = super().construct_scalar(node)
        if isinstance(value, str) and not value.isascii():  # JSON writes 🙂 as two halves, \ud83d\ude42
            value = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return value

    def whole_number(self, node) -> int:
        text = self.construct_scalar(node)
        try:
            return int(text, 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10)
        except ValueError:
            problem = f"a number of {len(text)} characters" if text.isdigit() else f'"{text[:60]}" is no number'
            raise ConstructorError(None, None, problem, node.start_mark) from None


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?\d+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    Loader.add_implicit_resolver(_TAG + _tag, re.compile(rf"^(?:{_pattern})\Z", re.ASCII), _first)
Loader.add_constructor(_TAG + "int", Loader.whole_number)


class _Walk:
    """Notes the line of every value, and refuses what cannot be meant."""

    def __init__(self, loader: Loader):
        self.loader = loader
        self.lines: dict[tuple, int] = {}

    def note(self, node, at: tuple) -> None:
        if isinstance(node, yaml.MappingNode):
            self._note_mapping(node, at)
        elif isinstance(node, yaml.SequenceNode):
            for i, value in enumerate(node.value):
                self.lines[(*at, i)] = value.start_mark.line + 1
                self.note(value, (*at, i))
        self._check_tag(node)

    def _note_mapping(self, node, at: tuple) -> None:
        seen = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _refused(key, "a list or mapping cannot be a key")
            name = key.value
            if name in seen and key.tag != _TAG + "merge":
                raise _refused(key, f'"{name[:60]}" is given twice')
            seen.add(name)
            self.lines[(*at, name)] = key.start_mark.line + 1
            self.note(value, (*at, name))

    def _check_tag(self, node) -> None:
        """A text may be marked as one (!!str 5); any other tag says what is plain, or what we do not know."""
        if isinstance(node, yaml.ScalarNode):
            plain = self.loader.resolve(yaml.ScalarNode, node.value, (True, False))
            if node.tag == _TAG + "merge":
                node.tag = _TAG + "str"
            meant = (plain, _TAG + "str")
        else:
            meant = (_TAG + ("map" if isinstance(node, yaml.MappingNode) else "seq"),)
        if node.tag not in meant:
            raise _refused(node, f"the tag {node.tag.replace(_TAG, '!!')[:60]} has no meaning here")


def _refused(node, problem: str) -> Refused:
    return Refused(None, None, problem, node.start_mark)
