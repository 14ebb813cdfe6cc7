"""Inflection tables in UniMorph's format: lemma TAB form TAB tags, a line each; their tags as UD features.

What a tag means in UD stands in `workflow/patterns/unimorph/tags.yaml`.
"""

from functools import cache
from pathlib import Path

import yaml

from vernacular.core.errors import DataError
from vernacular.data.treebank.pattern import READY

TAGS = READY / "unimorph" / "tags.yaml"


class Inflections:
    """One such file; `skipped` counts lines that are no use, by reason."""

    def __init__(self, path, name: str | None = None):
        name = name or str(path)
        self.skipped: dict[str, int] = {}
        self._entries: dict[tuple[str, str], list[tuple[str, dict[str, str]]]] = {}
        self._stated: dict[tuple[str, str], set[str]] = {}
        try:
            text = Path(path).read_text("utf-8-sig")
        except FileNotFoundError:
            raise DataError(f"{name}: there is no such file.") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{name}: not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
        except OSError as error:
            raise DataError(f"{name}: cannot be read ({error.strerror}).") from None
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                fields = line.rstrip("\r").split("\t")
                if len(fields) < 3:
                    raise DataError(f"{name}, line {number}: expected lemma, form and tags with tabs between them.")
                self._add(*fields[:3])

    def find(self, lemma: str, upos: str, feats: dict, swapped: tuple[str, ...], ignore=()) -> set[str]:
        """Forms whose entry states the `swapped` features, states nothing that is not in `feats`, and leaves out
        nothing of `feats` that other entries of the lemma state (a table need not say that a verb is finite).
        """
        stated = self._stated.get((lemma, upos), set()) - set(ignore)
        if not set(swapped) & feats.keys() <= stated:
            return set()
        wanted = {name: value for name, value in feats.items() if name in stated}
        entries = self._entries.get((lemma, upos), ())
        return {form for form, entry in entries if {k: v for k, v in entry.items() if k not in ignore} == wanted}

    def _add(self, lemma: str, form: str, tags: str) -> None:
        if not form or form == "-" or " " in form:
            return self._skip("no single word")
        first, *rest = tags.strip().split(";")
        kind = _table()["upos"].get(first)
        feats = features(rest) if kind else None
        if feats is None:
            return self._skip("tags without UD equivalent")
        feats |= {name: str(value) for name, value in kind.get("feats", {}).items()}
        for upos in kind["upos"]:
            self._entries.setdefault((lemma, upos), []).append((form, feats))
            self._stated.setdefault((lemma, upos), set()).update(feats)
        return None

    def _skip(self, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


def features(tags: list[str]) -> dict[str, str] | None:
    """The UD features of UniMorph tags, None where one of them has no equivalent.

    >>> features(["IND", "PST", "3", "SG", "IPFV"])
    {'Tense': 'Imp', 'Mood': 'Ind', 'Person': '3', 'Number': 'Sing'}
    """
    feats: dict[str, str] = {}
    left = list(filter(None, tags))
    for entry in _table()["together"]:
        if set(entry["tags"]) <= set(left):
            feats |= entry["feats"]
            left = [tag for tag in left if tag not in entry["tags"]]
    for tag in left:
        if tag not in _table()["tags"]:
            return None
        feats |= _table()["tags"][tag]
    return {name: str(value) for name, value in feats.items()}


@cache
def _table() -> dict:
    table = yaml.safe_load(TAGS.read_text("utf-8"))
    return table | {"tags": {str(tag): feats for tag, feats in table["tags"].items()}}
