"""Minimal pairs from matches: a sentence, and the same sentence with one word in an incorrect form."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from vernacular.core.fingerprint import fingerprint
from vernacular.data.treebank.forms import Forms, is_right, like
from vernacular.data.treebank.match import Match, Request, matches
from vernacular.data.treebank.sentences import Sentence, Word

MASK = "[MASK]"
MULTIWORD = "inside a multiword token"
NO_FORM = "no form with the swapped feature"
NO_LEMMA = "no lemma"
NO_SWAP = "already has the value to swap to"
SYNCRETIC = "syncretic: correct and incorrect form are spelled alike"


@dataclass
class Pairs:
    """Results of one pattern: a row per pair, and counts of all other matches by reason."""

    pattern: dict
    rows: list[dict] = field(default_factory=list)
    targets: int = 0  # words that fit the target
    related: int = 0  # matches: targets with all related words
    left_out: Counter = field(default_factory=Counter)  # reason -> number of matches without a pair
    lost: dict[str, list[str]] = field(default_factory=dict)  # reason -> the first few of them, with the target marked

    def leave_out(self, reason: str, sentence: Sentence, word: Word) -> None:
        self.left_out[reason] += 1
        if len(shown := self.lost.setdefault(reason, [])) < 5:
            shown.append(marked(sentence, word))


def make_pairs(
    sentences: list[Sentence], pattern: dict, forms: Forms, found: Iterable[tuple[Sentence, Match]] | None = None
) -> Pairs:
    """Return a row for every match of `pattern` that gives a pair, and counts of all others by reason.

    Rows have Grew-TSE's columns: sentence_id, match_id (the word's ID), original_text, masked_text, prompt_text,
    form_grammatical, form_ungrammatical (…_2, …_3 for further alternatives); and ungrammatical_text (…_2, …_3), lemma,
    upos, features, swapped (one text for all alternatives), deprel, distance, phenomenon, pattern, treebank.

    Args:
        found: Matches of another search (GREW); None: search `sentences`.
    """
    pairs = Pairs(pattern)
    for sentence, match in found if found is not None else _all(sentences, pattern):
        pairs.targets += 1
        if match.words is None:
            continue
        pairs.related += 1
        reason = _limited(sentence, match, pattern["limits"])
        wrong: list[tuple[str, dict]] = []
        if reason is None and match.target.start is None:
            reason = MULTIWORD
        if reason is None:
            wrong, reason = wrong_forms(match.target, pattern, forms)
        if wrong:
            pairs.rows.append(_row(sentence, match, wrong, pattern))
        else:
            pairs.leave_out(reason, sentence, match.target)
    _cap(pairs, pattern["limits"].get("per_lemma"))
    return pairs


def wrong_forms(target: Word, pattern: dict, forms: Forms) -> tuple[list[tuple[str, dict]], str | None]:
    """Return ([(form, swapped features)], None), or ([], reason), with the most frequent form of each swap.

    An incorrect form has the target's lemma and part of speech, the swapped features, and all others equal except for
    those to ignore. A form that is also correct (possibly with another value of an open feature) is excluded.
    """
    ignore = pattern["ignore"]
    if target.lemma in ("_", ""):
        return [], NO_LEMMA
    right = forms.right(target, [*ignore, *pattern["open"]])
    reasons, wrong, spelt = set(), [], {target.form.lower()}
    for swap in pattern["swap"]:
        feats = {name: value for name, value in {**target.feats, **swap}.items() if value is not None}
        if feats == target.feats:
            reasons.add(NO_SWAP)
            continue
        found = forms.find(target.lemma, target.upos, feats, swapped=tuple(swap), ignore=ignore)
        if not found:
            reasons.add(NO_FORM)
            continue
        form, times = min(found.items(), key=lambda entry: (-entry[1], entry[0]))
        if form.lower() == target.form.lower() or is_right(form, times, right):
            reasons.add(SYNCRETIC)
        elif form.lower() not in spelt:  # two swaps may yield the same form
            spelt.add(form.lower())
            wrong.append((like(form, target.form), swap))
    if wrong:
        return wrong, None
    return [], next(reason for reason in (SYNCRETIC, NO_FORM, NO_SWAP) if reason in reasons)


def marked(sentence: Sentence, word: Word) -> str:
    """Return the word in [[ ]] within its text, or, if it is inside a multiword token, after its text."""
    if word.start is None:
        at = max((other.end for other in sentence.words.values() if other.end and other.id < word.id), default=0)
        return f"{around(sentence.text[:at], '', sentence.text[at:])}  [[{word.form}]]"
    return around(sentence.text[: word.start], f"[[{word.form}]]", sentence.text[word.end :])


def around(before: str, middle: str, after: str, width: int = 60) -> str:
    """Return `middle` with at most `width` characters of text on either side, cut at spaces if possible."""
    if len(before) > width:
        before = "… " + before[-width:].partition(" ")[2] if " " in before[-width:-1] else "…" + before[-width:]
    if len(after) > width:
        after = after[:width].rpartition(" ")[0] + " …" if " " in after[1:width] else after[:width] + "…"
    return before + middle + after


def _all(sentences: Iterable[Sentence], pattern: dict) -> Iterator[tuple[Sentence, Match]]:
    request = Request.of(pattern)
    for sentence in sentences:
        for match in matches(sentence, request):
            yield sentence, match


def _limited(sentence: Sentence, match: Match, limits: dict) -> str | None:
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


def _row(sentence: Sentence, match: Match, wrong: list[tuple[str, dict]], pattern: dict) -> dict:
    word = match.target
    before, after = sentence.text[: word.start], sentence.text[word.end :]
    row = {
        "sentence_id": sentence.id,
        "match_id": str(word.id),
        "original_text": sentence.text,
        "masked_text": before + MASK + after,
        "prompt_text": before.rstrip(),
        "form_grammatical": word.form,
    }
    row |= {f"form_ungrammatical{_nth(i)}": form for i, (form, _) in enumerate(wrong)}
    row |= {f"ungrammatical_text{_nth(i)}": before + form + after for i, (form, _) in enumerate(wrong)}
    return row | {
        "lemma": word.lemma,
        "upos": word.upos,
        "features": "|".join(f"{name}={value}" for name, value in sorted(word.feats.items())),
        "swapped": " ".join(_swapped(swap) for _, swap in wrong),
        "deprel": word.deprel,
        "distance": "" if match.distance is None else str(match.distance),
        "phenomenon": pattern["phenomenon"],
        "pattern": pattern["pattern"],
        "treebank": sentence.file,
    }


def _nth(index: int) -> str:
    return f"_{index + 1}" if index else ""


def _swapped(swap: dict) -> str:
    return "|".join(f"{name}={value or ''}" for name, value in swap.items())


def _cap(pairs: Pairs, most: int | None) -> None:
    """Keep at most `most` rows per lemma, selected by hash and thus independently of their order in the treebank."""
    if most is None:
        return
    by_lemma: dict[str, list[dict]] = {}
    for row in sorted(pairs.rows, key=lambda row: fingerprint([row["sentence_id"], row["match_id"]])):
        by_lemma.setdefault(row["lemma"], []).append(row)
    kept = {id(row) for rows in by_lemma.values() for row in rows[:most]}
    if over := len(pairs.rows) - len(kept):
        pairs.left_out[f"more than {most} with the same lemma"] = over
        pairs.rows = [row for row in pairs.rows if id(row) in kept]
