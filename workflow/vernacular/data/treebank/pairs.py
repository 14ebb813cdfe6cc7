"""Minimal pairs from matches: a sentence, and the same sentence with one word in an incorrect form."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from vernacular.core.fingerprint import fingerprint
from vernacular.data.treebank.forms import Forms, is_correct, match_case
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

    Rows have Grew-TSE's columns: sentence_id, match_id (the word's ID), original_text, masked_text, prompt_text,
    form_grammatical, form_ungrammatical (…_2, …_3 for further alternatives); and ungrammatical_text (…_2, …_3), lemma,
    upos, features, swapped (one text for all alternatives), deprel, distance, phenomenon, pattern, treebank.

    Args:
        external_matches: Matches of another search (GREW); None: search `sentences`.
    """
    pairs = Pairs(pattern)
    for sentence, match in external_matches if external_matches is not None else _search(sentences, pattern):
        pairs.targets += 1
        if match.words is None:
            continue
        pairs.related += 1
        reason = _check_limits(sentence, match, pattern["limits"])
        incorrect: list[tuple[str, dict]] = []
        if reason is None and match.target.start is None:
            reason = MULTIWORD
        if reason is None:
            incorrect, reason = incorrect_forms(match.target, pattern, forms)
        if incorrect:
            pairs.rows.append(_row(sentence, match, incorrect, pattern))
        else:
            pairs.reject(reason, sentence, match.target)
    _limit_per_lemma(pairs, pattern["limits"].get("per_lemma"))
    return pairs


def incorrect_forms(target: Word, pattern: dict, forms: Forms) -> tuple[list[tuple[str, dict]], str | None]:
    """Return ([(form, swapped features)], None), or ([], reason), with the most frequent form of each swap.

    An incorrect form has the target's lemma and part of speech, the swapped features, and all others equal except for
    those to ignore. A form that is also correct (possibly with another value of an open feature) is excluded.
    """
    ignore = pattern["ignore"]
    if target.lemma in ("_", ""):
        return [], NO_LEMMA
    correct_forms = forms.correct_forms(target, [*ignore, *pattern["open"]])
    reasons, incorrect, spellings = set(), [], {target.form.lower()}
    for swap in pattern["swap"]:
        feats = {name: value for name, value in {**target.feats, **swap}.items() if value is not None}
        if feats == target.feats:
            reasons.add(NO_SWAP)
            continue
        counts = forms.find(target.lemma, target.upos, feats, swapped=tuple(swap), ignore=ignore)
        if not counts:
            reasons.add(NO_FORM)
            continue
        form, count = min(counts.items(), key=lambda entry: (-entry[1], entry[0]))
        if form.lower() == target.form.lower() or is_correct(form, count, correct_forms):
            reasons.add(SYNCRETIC)
        elif form.lower() not in spellings:  # two swaps may yield the same form
            spellings.add(form.lower())
            incorrect.append((match_case(form, target.form), swap))
    if incorrect:
        return incorrect, None
    return [], next(reason for reason in (SYNCRETIC, NO_FORM, NO_SWAP) if reason in reasons)


def mark_word(sentence: Sentence, word: Word) -> str:
    """Return the word in [[ ]] within its text, or, if it is inside a multiword token, after its text."""
    if word.start is None:
        position = max(
            (neighbor.end for neighbor in sentence.words.values() if neighbor.end and neighbor.id < word.id), default=0
        )
        return f"{shorten_context(sentence.text[:position], '', sentence.text[position:])}  [[{word.form}]]"
    return shorten_context(sentence.text[: word.start], f"[[{word.form}]]", sentence.text[word.end :])


def shorten_context(left: str, text: str, right: str, width: int = 60) -> str:
    """Return `text` with at most `width` characters of text on either side, cut at spaces if possible."""
    if len(left) > width:
        left = "… " + left[-width:].partition(" ")[2] if " " in left[-width:-1] else "…" + left[-width:]
    if len(right) > width:
        right = right[:width].rpartition(" ")[0] + " …" if " " in right[1:width] else right[:width] + "…"
    return left + text + right


def _search(sentences: Iterable[Sentence], pattern: dict) -> Iterator[tuple[Sentence, Match]]:
    request = Request.of(pattern)
    for sentence in sentences:
        for match in matches(sentence, request):
            yield sentence, match


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
    prefix, suffix = sentence.text[: word.start], sentence.text[word.end :]
    row = {
        "sentence_id": sentence.id,
        "match_id": str(word.id),
        "original_text": sentence.text,
        "masked_text": prefix + MASK + suffix,
        "prompt_text": prefix.rstrip(),
        "form_grammatical": word.form,
    }
    row |= {f"form_ungrammatical{_suffix(i)}": form for i, (form, _) in enumerate(incorrect)}
    row |= {f"ungrammatical_text{_suffix(i)}": prefix + form + suffix for i, (form, _) in enumerate(incorrect)}
    return row | {
        "lemma": word.lemma,
        "upos": word.upos,
        "features": "|".join(f"{name}={value}" for name, value in sorted(word.feats.items())),
        "swapped": " ".join(_format_swap(swap) for _, swap in incorrect),
        "deprel": word.deprel,
        "distance": "" if match.distance is None else str(match.distance),
        "phenomenon": pattern["phenomenon"],
        "pattern": pattern["pattern"],
        "treebank": sentence.file,
    }


def _suffix(index: int) -> str:
    return f"_{index + 1}" if index else ""


def _format_swap(swap: dict) -> str:
    return "|".join(f"{name}={value or ''}" for name, value in swap.items())


def _limit_per_lemma(pairs: Pairs, max_rows: int | None) -> None:
    """Keep at most `max_rows` rows per lemma, selected by hash, independently of their order in the treebank."""
    if max_rows is None:
        return
    by_lemma: dict[str, list[dict]] = {}
    for row in sorted(pairs.rows, key=lambda row: fingerprint([row["sentence_id"], row["match_id"]])):
        by_lemma.setdefault(row["lemma"], []).append(row)
    kept_ids = {id(row) for rows in by_lemma.values() for row in rows[:max_rows]}
    if n_excess := len(pairs.rows) - len(kept_ids):
        reason, first = (
            f"more than {max_rows} with the same lemma",
            next(r for r in pairs.rows if id(r) not in kept_ids),
        )
        pairs.rejections[reason] = n_excess
        pairs.first_rejected[reason] = f'sentence {first["sentence_id"]}: lemma "{first["lemma"]}"'
        pairs.rows = [row for row in pairs.rows if id(row) in kept_ids]
