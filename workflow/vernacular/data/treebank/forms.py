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
        self._feature_names: dict[tuple[str, str], set[str]] = {}
        try:
            text = Path(path).read_text("utf-8-sig")
        except FileNotFoundError:
            raise DataError(f"{name}: file not found.") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{name}: not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
        except OSError as error:
            raise DataError(f"{name}: cannot be read ({error.strerror}).") from None
        for line_number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                fields = line.rstrip("\r").split("\t")
                if len(fields) < 3:
                    raise DataError(
                        f"{name}, line {line_number}: expected lemma, form and tags with tabs between them."
                    )
                self._add(*fields[:3])

    def find(self, lemma: str, upos: str, feats: dict, swapped: tuple[str, ...], ignore=()) -> set[str]:
        """Return the forms of a lemma whose entry has the features `feats`, except for those in `ignore`.

        An entry must state the `swapped` features, may state nothing that is not in `feats`, and may omit only those
        features that no entry of the lemma states (for example, that a verb is finite).
        """
        feature_names = self._feature_names.get((lemma, upos), set()) - set(ignore)
        if not set(swapped) & feats.keys() <= feature_names:
            return set()
        expected = {name: value for name, value in feats.items() if name in feature_names}
        entries = self._entries.get((lemma, upos), ())
        return {form for form, entry in entries if {k: v for k, v in entry.items() if k not in ignore} == expected}

    def _add(self, lemma: str, form: str, tags: str) -> None:
        if not form or form == "-" or " " in form:
            return self._skip("not a single word")
        upos_tag, *feature_tags = tags.strip().split(";")
        upos_entry = _table()["upos"].get(upos_tag)
        feats = features(feature_tags) if upos_entry else None
        if feats is None:
            return self._skip("tags without UD equivalent")
        feats |= {name: str(value) for name, value in upos_entry.get("feats", {}).items()}
        for upos in upos_entry["upos"]:
            self._entries.setdefault((lemma, upos), []).append((form, feats))
            self._feature_names.setdefault((lemma, upos), set()).update(feats)
        return None

    def _skip(self, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


def features(tags: list[str]) -> dict[str, str] | None:
    """Return the UD features of UniMorph tags; None if a tag has no equivalent.

    >>> features(["IND", "PST", "3", "SG", "IPFV"])
    {'Tense': 'Imp', 'Mood': 'Ind', 'Person': '3', 'Number': 'Sing'}
    """
    feats: dict[str, str] = {}
    remaining = list(filter(None, tags))
    for entry in _table()["together"]:
        if set(entry["tags"]) <= set(remaining):
            feats |= entry["feats"]
            remaining = [tag for tag in remaining if tag not in entry["tags"]]
    for tag in remaining:
        if tag not in _table()["tags"]:
            return None
        feats |= _table()["tags"][tag]
    return {name: str(value) for name, value in feats.items()}


@cache
def _table() -> dict:
    return read(TAGS)[0]


_EXCLUDED_FEATURES = ("Typo", "Abbr", "Foreign")  # words with these features do not attest a form
_ERROR_RATIO = 20  # an analysis this many times rarer than the other is an annotation error, not syncretism


class Forms:
    """Forms attested in treebanks, with counts (ignoring case), and inflection tables as a fallback.

    Words inside a multiword token are not counted: treebanks may spell them differently from independent words.
    """

    def __init__(self, sentences: Iterable[Sentence], tables: Iterable[Inflections] = ()):
        self.tables = list(tables)
        self._attested: dict[tuple[str, str], dict[tuple, Counter]] = {}
        self._cache: dict[tuple, Counter] = {}
        self._counts: Counter = Counter()
        for sentence in sentences:
            for word in sentence.words.values():
                self._counts[word.form.lower()] += 1
                if word.start is None or any(word.feats.get(name) == "Yes" for name in _EXCLUDED_FEATURES):
                    continue
                bundles = self._attested.setdefault((word.lemma, word.upos), {})
                bundles.setdefault(tuple(sorted(word.feats.items())), Counter())[word.form] += 1

    def find(self, lemma: str, upos: str, feats: dict, *, swapped: tuple[str, ...], ignore=()) -> Counter:
        """Return counts of the forms with exactly these features: attested ones, or else those in the tables.

        Features in `ignore` are not compared. An entry of a table must state the `swapped` ones.
        """
        return self.attested_forms(lemma, upos, feats, ignore) or self.listed_forms(lemma, upos, feats, swapped, ignore)

    def correct_forms(self, word: Word, ignore=()) -> Counter:
        """Return counts of all lowercase forms that are correct for the word with its own features."""
        analysis = (word.lemma, word.upos, word.feats)
        counts: Counter = Counter()
        for forms in (self.attested_forms(*analysis, ignore), self.listed_forms(*analysis, (), ignore)):
            for form, count in forms.items():
                counts[form.lower()] += count
        return counts

    def attested_forms(self, lemma: str, upos: str, feats: dict, ignore=()) -> Counter:
        """Return counts of forms in the treebanks, ignoring case, under the most frequent spelling."""
        expected = _filter_features(feats.items(), ignore)
        key = (lemma, upos, expected, tuple(ignore))  # a few words account for most calls
        if key in self._cache:
            return self._cache[key]
        counts: Counter = Counter()
        for bundle, forms in self._attested.get((lemma, upos), {}).items():
            if _filter_features(bundle, ignore) == expected:
                counts += forms
        self._cache[key] = _merge_case(counts)
        return self._cache[key]

    def listed_forms(self, lemma: str, upos: str, feats: dict, swapped: tuple[str, ...], ignore=()) -> Counter:
        """Return the forms in the tables with 1 + the count of their spelling in the treebanks under any analysis."""
        forms = {form for table in self.tables for form in table.find(lemma, upos, feats, swapped, ignore)}
        return Counter({form: self._counts[form.lower()] + 1 for form in forms})


def is_correct(form: str, count: int, correct: Counter) -> bool:
    """Return whether `form`, seen `count` times with the incorrect features, is also a form with the correct ones.

    >>> is_correct("cantaba", 9, Counter(cantaba=7)), is_correct("son", 400, Counter(é=900, son=1))
    (True, False)
    """
    return form.lower() in correct and correct[form.lower()] * _ERROR_RATIO >= count


def match_case(form: str, reference: str) -> str:
    """Return `form` with the case of `reference`: all capitals, a capital first letter, or a lowercase first letter.

    >>> match_case("cantan", "Canta"), match_case("cantan", "CANTA")
    ('Cantan', 'CANTAN')
    >>> match_case("Häuser", "Haus"), match_case("é", "Son")
    ('Häuser', 'É')
    """
    if _capitals(reference):
        return form.upper()
    if not form or reference == reference.swapcase():
        return form
    form = form.lower() if _capitals(form) else form
    return (form[0].title() if reference[0] != reference[0].lower() else form[0].lower()) + form[1:]


def _capitals(form: str) -> bool:
    """Return whether a form is in all capitals; False if it has only one cased letter."""
    cased = [letter for letter in form if letter.lower() != letter.upper()]
    return len(cased) > 1 and all(letter == letter.upper() for letter in cased)


def _filter_features(feats, ignore) -> tuple:
    return tuple(sorted((name, value) for name, value in feats if name not in ignore))


def _merge_case(forms: Counter) -> Counter:
    """Merge counts of forms that differ only in case, under the most frequent spelling."""
    merged: Counter = Counter()
    spelling: dict[str, str] = {}
    for form, count in sorted(forms.items(), key=lambda entry: (-entry[1], entry[0])):
        merged[spelling.setdefault(form.lower(), form)] += count
    return merged
