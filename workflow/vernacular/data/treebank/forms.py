"""Word forms by lemma, part of speech and features: forms attested in treebanks, and UniMorph inflection tables.

A UniMorph file has one line per form: lemma TAB form TAB tags. `workflow/treebank_patterns/unimorph/tags.yaml`
maps tags to UD features.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from vernacular.core.errors import DataError
from vernacular.core.yaml import read
from vernacular.data.treebank.patterns import TAGS
from vernacular.data.treebank.sentences import Sentence, Word


class Inflections:
    """Inflection table in UniMorph's format; `skipped` counts unused lines by reason."""

    def __init__(self, path, name: str | None = None):
        name = name or str(path)
        self.skipped: dict[str, int] = {}
        self._entries: dict[tuple[str, str], list[tuple[str, dict[str, str]]]] = {}
        self._stated: dict[tuple[str, str], set[str]] = {}
        try:
            text = Path(path).read_text("utf-8-sig")
        except FileNotFoundError:
            raise DataError(f"{name}: file not found.") from None
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
        """Return the forms of a lemma whose entry has the features `feats`, except for those in `ignore`.

        An entry must state the `swapped` features, may state nothing that is not in `feats`, and may omit only those
        features that no entry of the lemma states (for example, that a verb is finite).
        """
        stated = self._stated.get((lemma, upos), set()) - set(ignore)
        if not set(swapped) & feats.keys() <= stated:
            return set()
        wanted = {name: value for name, value in feats.items() if name in stated}
        entries = self._entries.get((lemma, upos), ())
        return {form for form, entry in entries if {k: v for k, v in entry.items() if k not in ignore} == wanted}

    def _add(self, lemma: str, form: str, tags: str) -> None:
        if not form or form == "-" or " " in form:
            return self._skip("not a single word")
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
    """Return the UD features of UniMorph tags; None if a tag has no equivalent.

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
    return read(TAGS)[0]


_NOT_THE_LANGUAGE = ("Typo", "Abbr", "Foreign")  # words with these features do not attest a form
_SLIP = 20  # an analysis this many times rarer than the other is an annotation error, not syncretism


class Forms:
    """Forms attested in treebanks, with counts (ignoring case), and inflection tables as a fallback.

    Words inside a multiword token are not counted: treebanks may spell them differently from independent words.
    """

    def __init__(self, sentences: Iterable[Sentence], tables: Iterable[Inflections] = ()):
        self.tables = list(tables)
        self._attested: dict[tuple[str, str], dict[tuple, Counter]] = {}
        self._answers: dict[tuple, Counter] = {}
        self._counts: Counter = Counter()
        for sentence in sentences:
            for word in sentence.words.values():
                self._counts[word.form.lower()] += 1
                if word.start is None or any(word.feats.get(name) == "Yes" for name in _NOT_THE_LANGUAGE):
                    continue
                bundles = self._attested.setdefault((word.lemma, word.upos), {})
                bundles.setdefault(tuple(sorted(word.feats.items())), Counter())[word.form] += 1

    def find(self, lemma: str, upos: str, feats: dict, *, swapped: tuple[str, ...], ignore=()) -> Counter:
        """Return counts of the forms with exactly these features: attested ones, or else those in the tables.

        Features in `ignore` are not compared. An entry of a table must state the `swapped` ones.
        """
        return self.attested(lemma, upos, feats, ignore) or self.listed(lemma, upos, feats, swapped, ignore)

    def right(self, word: Word, ignore=()) -> Counter:
        """Return counts of all lowercase forms that are correct for the word with its own features."""
        own = (word.lemma, word.upos, word.feats)
        found: Counter = Counter()
        for forms in (self.attested(*own, ignore), self.listed(*own, (), ignore)):
            for form, times in forms.items():
                found[form.lower()] += times
        return found

    def attested(self, lemma: str, upos: str, feats: dict, ignore=()) -> Counter:
        """Return counts of forms in the treebanks, ignoring case, under the most frequent spelling."""
        wanted = _without(feats.items(), ignore)
        asked = (lemma, upos, wanted, tuple(ignore))  # a few words account for most calls
        if asked in self._answers:
            return self._answers[asked]
        found: Counter = Counter()
        for bundle, forms in self._attested.get((lemma, upos), {}).items():
            if _without(bundle, ignore) == wanted:
                found += forms
        self._answers[asked] = _merged(found)
        return self._answers[asked]

    def listed(self, lemma: str, upos: str, feats: dict, swapped: tuple[str, ...], ignore=()) -> Counter:
        """Return the forms in the tables with 1 + the count of their spelling in the treebanks under any analysis."""
        found = {form for table in self.tables for form in table.find(lemma, upos, feats, swapped, ignore)}
        return Counter({form: self._counts[form.lower()] + 1 for form in found})


def is_right(form: str, times: int, right: Counter) -> bool:
    """Return whether `form`, seen `times` with the incorrect features, is also a form with the correct ones.

    >>> is_right("cantaba", 9, Counter(cantaba=7)), is_right("son", 400, Counter(é=900, son=1))
    (True, False)
    """
    return form.lower() in right and right[form.lower()] * _SLIP >= times


def like(form: str, model: str) -> str:
    """Return `form` with the case of `model`: all capitals, a capital first letter, or a lowercase first letter.

    >>> like("cantan", "Canta"), like("cantan", "CANTA"), like("Häuser", "Haus"), like("é", "Son")
    ('Cantan', 'CANTAN', 'Häuser', 'É')
    """
    if _capitals(model):
        return form.upper()
    if not form or model == model.swapcase():
        return form
    form = form.lower() if _capitals(form) else form
    return (form[0].title() if model[0] != model[0].lower() else form[0].lower()) + form[1:]


def _capitals(form: str) -> bool:
    """Return whether a form is in all capitals; False if it has only one cased letter."""
    cased = [letter for letter in form if letter.lower() != letter.upper()]
    return len(cased) > 1 and all(letter == letter.upper() for letter in cased)


def _without(feats, ignore) -> tuple:
    return tuple(sorted((name, value) for name, value in feats if name not in ignore))


def _merged(forms: Counter) -> Counter:
    """Merge counts of forms that differ only in case, under the most frequent spelling."""
    merged: Counter = Counter()
    spelling: dict[str, str] = {}
    for form, times in sorted(forms.items(), key=lambda entry: (-entry[1], entry[0])):
        merged[spelling.setdefault(form.lower(), form)] += times
    return merged
