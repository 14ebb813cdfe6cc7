"""Word forms by lemma, part of speech and features: what a treebank attests, and lists in UniMorph's format."""

from collections import Counter
from collections.abc import Iterable

from vernacular.data.treebank.sentences import Sentence, Word
from vernacular.data.treebank.unimorph import Inflections

_NOT_THE_LANGUAGE = ("Typo", "Abbr", "Foreign")  # a word marked so attests no form
_SLIP = 20  # a reading this much rarer than the other is a slip of annotation, and no syncretism


class Forms:
    """Forms attested in treebanks, with counts (capitals aside), and inflection tables to fall back on.

    Words inside a multiword token do not count: the treebank may have written them otherwise than they stand alone.
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
        """Form -> how often, for exactly these features: those attested; where there are none, those in the tables.

        Features in `ignore` do not matter. A table's entry must state the `swapped` ones.
        """
        return self.attested(lemma, upos, feats, ignore) or self.listed(lemma, upos, feats, swapped, ignore)

    def right(self, word: Word, ignore=()) -> Counter:
        """Form in small letters -> how often: everything that may stand for the word in its own features."""
        own = (word.lemma, word.upos, word.feats)
        found: Counter = Counter()
        for forms in (self.attested(*own, ignore), self.listed(*own, (), ignore)):
            for form, times in forms.items():
                found[form.lower()] += times
        return found

    def attested(self, lemma: str, upos: str, feats: dict, ignore=()) -> Counter:
        """Counts in the treebanks; capitals aside, under the spelling seen most often."""
        wanted = _without(feats.items(), ignore)
        asked = (lemma, upos, wanted, tuple(ignore))  # a treebank asks for the same few words again and again
        if asked in self._answers:
            return self._answers[asked]
        found: Counter = Counter()
        for bundle, forms in self._attested.get((lemma, upos), {}).items():
            if _without(bundle, ignore) == wanted:
                found += forms
        self._answers[asked] = _merged(found)
        return self._answers[asked]

    def listed(self, lemma: str, upos: str, feats: dict, swapped: tuple[str, ...], ignore=()) -> Counter:
        """Forms in the tables, with the count of their spelling in the treebanks under any reading, plus one."""
        found = {form for table in self.tables for form in table.find(lemma, upos, feats, swapped, ignore)}
        return Counter({form: self._counts[form.lower()] + 1 for form in found})


def is_right(form: str, times: int, right: Counter) -> bool:
    """May `form`, seen `times` in the wrong features, stand in the right ones too?

    >>> is_right("cantaba", 9, Counter(cantaba=7)), is_right("son", 400, Counter(é=900, son=1))
    (True, False)
    """
    return form.lower() in right and right[form.lower()] * _SLIP >= times


def like(form: str, model: str) -> str:
    """`form` with the capitals of `model`: all, the first letter, or none at the beginning.

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
    """Is it written in capitals? One letter alone does not tell."""
    cased = [letter for letter in form if letter.lower() != letter.upper()]
    return len(cased) > 1 and all(letter == letter.upper() for letter in cased)


def _without(feats, ignore) -> tuple:
    return tuple(sorted((name, value) for name, value in feats if name not in ignore))


def _merged(forms: Counter) -> Counter:
    """Counts of forms that differ in capitals only, under the spelling seen most often."""
    merged: Counter = Counter()
    spelling: dict[str, str] = {}
    for form, times in sorted(forms.items(), key=lambda entry: (-entry[1], entry[0])):
        merged[spelling.setdefault(form.lower(), form)] += times
    return merged
