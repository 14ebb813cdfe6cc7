"""Minimal pairs from matches: a sentence, and the same sentence with one word in an incorrect form.

Forms are those attested in the treebanks, and those of UniMorph tables (per line lemma TAB form TAB tags), whose tags
`workflow/treebank_patterns/unimorph/tags.yaml` maps to UD features.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from vernacular.core.errors import DataError
from vernacular.core.fingerprint import fingerprint
from vernacular.core.languages import script_of
from vernacular.core.yaml import read
from vernacular.data.readers import read_text
from vernacular.data.treebank.patterns import TAGS
from vernacular.data.treebank.sentences import Match, Request, Sentence, Word, matches


class Inflections:
    """Inflection table in UniMorph's format; `skipped` counts unused lines by reason."""

    def __init__(self, path, name: str | None = None):
        name = name or str(path)
        self.skipped: dict[str, int] = {}
        self._entries: dict[tuple[str, str], list[tuple[str, dict[str, str]]]] = {}
        self._feature_names: dict[tuple[str, str], set[str]] = {}
        text = unicodedata.normalize("NFC", read_text(path, name, "UniMorph"))  # as treebanks of UD
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

        An entry states the `swapped` ones and none that `feats` lacks; it may omit those that no entry of the lemma
        states.
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


_EXCLUDED_FEATURES = ("Abbr", "Foreign")  # words with these features do not attest a form
_FREQUENT = 0.01  # share of the words with dotless i, from which I is its capital
_ERROR_RATIO = 20  # an analysis this many times rarer than the other is an annotation error, not syncretism


class Forms:
    """Forms attested in treebanks, with counts (ignoring case), and tables as a fallback; none of multiword tokens."""

    def __init__(self, sentences: Iterable[Sentence], tables: Iterable[Inflections] = ()):
        self.tables = list(tables)
        self._attested: dict[tuple[str, str], dict[tuple, Counter]] = {}
        self._cache: dict[tuple, Counter] = {}
        self._dotless = 0  # words with dotless i
        self._counts: Counter = Counter()
        for sentence in sentences:
            for word in sentence.words.values():
                self._counts[folded(word.form)] += 1
                self._dotless += "ı" in word.form
                if (
                    word.start is None
                    or word.misspelled
                    or word.form == "_"
                    or any(word.feats.get(name) == "Yes" for name in _EXCLUDED_FEATURES)
                ):
                    continue
                bundles = self._attested.setdefault((word.lemma, word.upos), {})
                bundles.setdefault(tuple(sorted(word.feats.items())), Counter())[word.form] += 1

    @property
    def is_dotted(self) -> bool:
        """Whether the capitals of i and ı are İ and I, as in Turkish and Azerbaijani."""
        return self._dotless > _FREQUENT * self._counts.total()

    def find(self, lemma: str, upos: str, feats: dict, *, swapped: tuple[str, ...], ignore=()) -> Counter:
        """Return counts of the forms with exactly these features: attested ones, or else those in the tables."""
        return self.attested_forms(lemma, upos, feats, ignore) or self.listed_forms(lemma, upos, feats, swapped, ignore)

    def correct_forms(self, word: Word, ignore=()) -> Counter:
        """Return counts of all lowercase forms that are correct for the word with its own features or, if words have
        several values (`Number=Plur,Sing`), may be.
        """
        analysis = (word.lemma, word.upos, word.feats)
        counts: Counter = Counter()
        for forms in (self.attested_forms(*analysis, ignore, True), self.listed_forms(*analysis, (), ignore)):
            for form, count in forms.items():
                counts[folded(form)] += count
        return counts

    def attested_forms(self, lemma: str, upos: str, feats: dict, ignore=(), shares_values: bool = False) -> Counter:
        """Return counts of forms in the treebanks, ignoring case, under the most frequent spelling.

        Their features have equal values, or, with `shares_values`, one value of each in common.
        """
        expected = _filter_features(feats.items(), ignore)
        key = (lemma, upos, expected, tuple(ignore), shares_values)  # a few words account for most calls
        if key in self._cache:
            return self._cache[key]
        counts: Counter = Counter()
        for bundle, forms in self._attested.get((lemma, upos), {}).items():
            filtered = _filter_features(bundle, ignore)
            if filtered == expected or (shares_values and _share_values(dict(filtered), dict(expected))):
                counts += forms
        self._cache[key] = _merge_case(counts)
        return self._cache[key]

    def listed_forms(self, lemma: str, upos: str, feats: dict, swapped: tuple[str, ...], ignore=()) -> Counter:
        """Return the forms in the tables with 1 + the count of their spelling in the treebanks under any analysis."""
        forms = {form for table in self.tables for form in table.find(lemma, upos, feats, swapped, ignore)}
        return Counter({form: self._counts[folded(form)] + 1 for form in forms})


def is_correct(form: str, count: int, correct: Counter) -> bool:
    """Return whether `form`, seen `count` times with the incorrect features, is also a form with the correct ones.

    >>> is_correct("cantaba", 9, Counter(cantaba=7)), is_correct("son", 400, Counter(é=900, son=1))
    (True, False)
    """
    return folded(form) in correct and correct[folded(form)] * _ERROR_RATIO >= count


def folded(form: str) -> str:
    """Return a form as forms are compared: in lower case, dotted and dotless i as one, of which I may be the capital.

    >>> folded("İSTİYOR"), folded("Ιsı")
    ('istiyor', 'ιsi')
    """
    return form.replace("İ", "i").replace("ı", "i").lower()


def match_case(form: str, reference: str, is_dotted: bool = False) -> str | None:
    """Return `form` with the case of `reference`: all capitals, a capital first letter, or a lowercase first letter.

    None: the letters do not decide the spelling in that case. `is_dotted`: I is the capital of ı, as it also is if one
    of the words has ı or İ. Greek capitals have accents if those of the reference do (Unicode, SpecialCasing).

    >>> match_case("cantan", "Canta"), match_case("cantan", "CANTA"), match_case("istiyorum", "İSTİYOR")
    ('Cantan', 'CANTAN', 'İSTİYORUM')
    >>> match_case("Häuser", "Haus"), match_case("é", "Son"), match_case("μεγαλώνουν", "ΜΕΓΑΛΩΝΕΙ")
    ('Häuser', 'É', 'ΜΕΓΑΛΩΝΟΥΝ')
    """
    if (_capitals(form) and reference.startswith(form)) or (_capitals(reference) and form.startswith(reference)):
        return form  # an abbreviation, and with an ending in lower case: NATO-a, ONGs
    is_dotted = is_dotted or not {"ı", "İ"}.isdisjoint(form + reference)
    if _capitals(reference):
        return _upper(
            form, is_dotted, has_accents=unicodedata.normalize("NFC", reference) != _without_accents(reference)
        )
    if not form or reference == reference.swapcase():
        return form
    if _capitals(form):
        if _is_greek(form) or "SS" in form:  # accents, and ß, which capitals lack
            return None
        form = _lower(form, is_dotted)
    is_mutated = [re.match("[a-z]{1,2}-?[A-ZÁÉÍÓÚ]", text) is not None for text in (form, reference)]  # nGaeilge, Irish
    if is_mutated == [True, False] and reference[0] != reference[0].lower():
        return form
    if reference[0] == reference[0].lower() and is_mutated != [False, True]:
        first = 2 if form[:2] == "IJ" else 1  # Dutch
        return _lower(form[:first], is_dotted) + form[first:]
    if form[:2] == "ij":
        return None  # IJ in Dutch, Ij elsewhere
    return ("İ" if is_dotted and form[0] == "i" else form[0].title()) + form[1:]


def _lower(text: str, is_dotted: bool) -> str:
    return (text.replace("İ", "i").replace("I", "ı") if is_dotted else text).lower()


def _upper(form: str, is_dotted: bool, *, has_accents: bool) -> str | None:
    if "և" in form:
        return None  # two spellings in Armenian
    if _is_greek(form) and not has_accents:
        form = _without_accents(form)
    return (form.replace("i", "İ") if is_dotted else form).upper()


def _is_greek(text: str) -> bool:
    return script_of([text]) == "Grek"


def _without_accents(text: str) -> str:
    """Return a Greek text without accents, as capitals are; vowels that one divided have a diaeresis (ρολόι, ΡΟΛΟΪ)."""
    text = re.sub("([αεηιουωΑΕΗΙΟΥΩ])\u0301([ιυΙΥ])(?!\u0308)", "\\1\\2\u0308", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFC", re.sub("[\u0300\u0301\u0313\u0314\u0342]", "", text))


def _capitals(form: str) -> bool:
    """Return whether a form is in all capitals; False if it has only one cased letter."""
    cased = [letter for letter in form if letter.lower() != letter.upper()]
    return len(cased) > 1 and all(letter == letter.upper() for letter in cased)


def _filter_features(feats, ignore) -> tuple:
    return tuple(sorted((name, value) for name, value in feats if name not in ignore))


def _share_values(feats: dict, expected: dict) -> bool:
    """Return whether two words have the same features, and one value of each in common (`Case=Acc,Dat`)."""
    pairs = ((feats[name].split(","), expected[name].split(",")) for name in feats.keys() & expected.keys())
    return feats.keys() == expected.keys() and not any(set(values).isdisjoint(others) for values, others in pairs)


def _merge_case(forms: Counter) -> Counter:
    """Merge counts of forms that differ only in case, under the most frequent spelling."""
    merged: Counter = Counter()
    spelling: dict[str, str] = {}
    for form, count in sorted(forms.items(), key=lambda entry: (-entry[1], entry[0])):
        merged[spelling.setdefault(folded(form), form)] += count
    return merged


MASK = "[MASK]"
MULTIWORD = "inside a multiword token"
NO_FORM = "no form with the swapped feature"
NO_LEMMA = "no lemma"
NO_SWAP = "already has the value to swap to"
AGREES = "also agrees with the value to swap to"
NO_CASE = "its letters do not decide the spelling in the case of the correct form"
MISSPELLED = "misspelled word: Typo, CorrectForm or goeswith"
NO_WORDS = "form _ in place of a word: merge the words with the script in the treebank's repository"
SYNCRETIC = "syncretic: correct and incorrect form are spelled alike"


@dataclass
class Pairs:
    """Results of one pattern: a row per pair, and counts of all other matches by reason."""

    pattern: dict
    rows: list[dict] = field(default_factory=list)
    targets: int = 0  # words that fit the target
    related: int = 0  # matches: targets with all related words
    rejections: Counter = field(default_factory=Counter)  # reason -> number of matches without a pair
    # reason -> the first few of them, with the target marked
    rejection_examples: dict[str, list[str]] = field(default_factory=dict)

    first_rejected: dict[str, str] = field(default_factory=dict)  # reason -> where the first is, and its value

    def reject(self, reason: str, sentence: Sentence, word: Word) -> None:
        self.rejections[reason] += 1
        if reason not in self.first_rejected:
            self.first_rejected[reason] = f'{sentence.file}, sentence {sentence.id}: "{mark_word(sentence, word)}"'
        if len(examples := self.rejection_examples.setdefault(reason, [])) < 5:
            examples.append(mark_word(sentence, word))


def make_pairs(
    sentences: list[Sentence],
    pattern: dict,
    forms: Forms,
    external_matches: Iterable[tuple[Sentence, Match]] | None = None,
) -> Pairs:
    """Return a row for every match of `pattern` that gives a pair, and counts of all others by reason.

    Rows have Grew-TSE's columns, further alternatives with the suffixes _2, _3, and lemma, upos, features, swapped,
    deprel, distance, phenomenon, pattern, treebank. `external_matches`: of another search (GREW).
    """
    pairs, request = Pairs(pattern), None if external_matches is not None else Request.of(pattern)
    if external_matches is None:
        external_matches = ((sentence, match) for sentence in sentences for match in matches(sentence, request))
    for sentence, match in external_matches:
        pairs.targets += 1
        if match.words is None:
            continue
        pairs.related += 1
        reason = _check_limits(sentence, match, pattern["limits"])
        incorrect: list[tuple[str, dict]] = []
        if reason is None and match.target.start is None:
            reason = MULTIWORD
        reason = problem_of(sentence, match.words.values()) or reason
        if reason is None:
            agreeing: dict[str, set[str]] = {}
            for related in request.related if request else ():
                for name in related.agrees:
                    values = set(related.node.value(match.words[related.name], name).split(","))
                    agreeing[name] = values & agreeing.get(name, values)
            incorrect, reason = incorrect_forms(match.target, pattern, forms, agreeing)
        if incorrect:
            pairs.rows.append(_row(sentence, match, incorrect, pattern))
        else:
            pairs.reject(reason, sentence, match.target)
    _limit_per_lemma(pairs, pattern["limits"].get("per_lemma"))
    return pairs


def problem_of(sentence: Sentence, words: Iterable[Word]) -> str | None:
    """Return why a sentence is not correct, or its words `words` are not; None if nothing is known against it."""
    return NO_WORDS if sentence.is_stripped else MISSPELLED if any(word.misspelled for word in words) else None


def incorrect_forms(
    target: Word, pattern: dict, forms: Forms, agreeing: dict[str, set[str]] | None = None
) -> tuple[list[tuple[str, dict]], str | None]:
    """Return ([(form, swapped features)], None), or ([], reason), with the most frequent form of each swap.

    An incorrect form differs in the swapped features only, and is not also correct, with another value of an open one,
    or one of several of the target (`Case=Acc,Dat`) or of the words that it agrees with: `agreeing`, by feature.
    """
    ignore = pattern["ignore"]
    if target.lemma in ("_", ""):
        return [], NO_LEMMA
    correct_forms = forms.correct_forms(target, [*ignore, *pattern["open"]])
    own = folded(target.form)
    reasons, incorrect, spellings = set(), [], {own}
    for swap in pattern["swap"]:
        feats = {name: value for name, value in {**target.feats, **swap}.items() if value is not None}
        if _share_values(feats, target.feats):
            reasons.add(NO_SWAP)
            continue
        changed = {name: value for name, value in swap.items() if value not in target.feats.get(name, "").split(",")}
        if agreeing and all(value in agreeing.get(name, ()) for name, value in changed.items()):
            reasons.add(AGREES)
            continue
        counts = forms.find(target.lemma, target.upos, feats, swapped=tuple(swap), ignore=ignore)
        if not counts:
            reasons.add(NO_FORM)
            continue
        form, count = min(counts.items(), key=lambda entry: (-entry[1], entry[0]))
        spelled = match_case(form, target.form, forms.is_dotted)
        if target.form in (form, spelled) or folded(form) == own or is_correct(form, count, correct_forms):
            reasons.add(SYNCRETIC)
        elif spelled is None:
            reasons.add(NO_CASE)
        elif folded(form) not in spellings:  # two swaps may yield the same form
            spellings.add(folded(form))
            incorrect.append((spelled, swap))
    if incorrect:
        return incorrect, None
    return [], next(reason for reason in (SYNCRETIC, NO_CASE, NO_FORM, AGREES, NO_SWAP) if reason in reasons)


def mark_word(sentence: Sentence, word: Word) -> str:
    """Return the word in [[ ]] within its text, or, if it is inside a multiword token, after its text."""
    if word.start is None:
        before = (neighbor.end for neighbor in sentence.words.values() if neighbor.end and neighbor.id < word.id)
        position = max(before, default=0)
        return f"{shorten_context(sentence.text[:position], '', sentence.text[position:])}  [[{word.form}]]"
    return shorten_context(sentence.text[: word.start], f"[[{word.form}]]", sentence.text[word.end :])


def shorten_context(left: str, text: str, right: str, width: int = 60) -> str:
    """Return `text` with at most `width` characters of text on either side, cut at spaces if possible."""
    if len(left) > width:
        left = "… " + left[-width:].partition(" ")[2] if " " in left[-width:-1] else "…" + left[-width:]
    if len(right) > width:
        right = right[:width].rpartition(" ")[0] + " …" if " " in right[1:width] else right[:width] + "…"
    return left + text + right


def _check_limits(sentence: Sentence, match: Match, limits: dict) -> str | None:
    length, distance = len(sentence.words), match.distance
    if length > limits.get("max_words", length):
        return f"sentence of more than {limits['max_words']} words"
    if length < limits.get("min_words", length):
        return f"sentence of fewer than {limits['min_words']} words"
    if distance is not None and distance > limits.get("max_distance", distance):
        return f"more than {limits['max_distance']} words apart"
    if distance is not None and distance < limits.get("min_distance", distance):
        return f"fewer than {limits['min_distance']} words apart"
    return None


def _row(sentence: Sentence, match: Match, incorrect: list[tuple[str, dict]], pattern: dict) -> dict:
    word = match.target
    left, right = sentence.text[: word.start], sentence.text[word.end :]
    swaps = ("|".join(f"{name}={value or ''}" for name, value in swap.items()) for _, swap in incorrect)
    return pair_row(
        sentence,
        word,
        word.form,
        [(form, left + form + right) for form, _ in incorrect],
        pattern,
        features="|".join(f"{name}={value}" for name, value in sorted(word.feats.items())),
        swapped=" ".join(swaps),
        distance=match.distance,
    )


def pair_row(
    sentence: Sentence,
    word: Word,
    form: str,
    incorrect: list[tuple[str, str]],
    pattern: dict,
    *,
    features: str = "",
    swapped: str = "",
    distance: int | None = None,
) -> dict:
    """Return a row of `make_pairs`: `form` begins where the word does; (what replaces it, the text with that), …"""
    prefix, suffix = sentence.text[: word.start], sentence.text[word.start + len(form) :]
    row = {
        "sentence_id": sentence.id,
        "match_id": str(word.id),
        "original_text": sentence.text,
        "masked_text": prefix + MASK + suffix,
        "prompt_text": prefix.rstrip(),
        "form_grammatical": form,
    }
    row |= {f"form_ungrammatical{_suffix(i)}": replacement for i, (replacement, _) in enumerate(incorrect)}
    row |= {f"ungrammatical_text{_suffix(i)}": text for i, (_, text) in enumerate(incorrect)}
    return row | {
        "lemma": word.lemma,
        "upos": word.upos,
        "features": features,
        "swapped": swapped,
        "deprel": word.deprel,
        "distance": "" if distance is None else str(distance),
        "phenomenon": pattern["phenomenon"],
        "pattern": pattern["pattern"],
        "treebank": sentence.file,
    }


def _suffix(index: int) -> str:
    return f"_{index + 1}" if index else ""


def _limit_per_lemma(pairs: Pairs, max_rows: int | None) -> None:
    """Keep at most `max_rows` rows per lemma, selected by hash, independently of their order in the treebank."""
    if max_rows is None:
        return
    by_lemma: dict[str, list[dict]] = {}
    for row in sorted(pairs.rows, key=lambda row: fingerprint([row["sentence_id"], row["match_id"]])):
        by_lemma.setdefault(row["lemma"], []).append(row)
    kept_ids = {id(row) for rows in by_lemma.values() for row in rows[:max_rows]}
    if n_excess := len(pairs.rows) - len(kept_ids):
        reason = f"more than {max_rows} with the same lemma"
        first = next(r for r in pairs.rows if id(r) not in kept_ids)
        pairs.rejections[reason] = n_excess
        pairs.first_rejected[reason] = f'sentence {first["sentence_id"]}: lemma "{first["lemma"]}"'
        pairs.rows = [row for row in pairs.rows if id(row) in kept_ids]
