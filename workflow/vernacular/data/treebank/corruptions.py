"""Minimal pairs without a pattern of words: a sentence, and the same one without a word, or with two words swapped.

The method is that of ScaLA (Nielsen 2023, ScandEval, NoDaLiDa), whose rules by part of speech leave out what usually
gives another correct sentence; here the two sentences of a pair stay together. One place per sentence is selected by
hash. The first word is not changed, because its capital letter would show it.
"""

import itertools
from collections.abc import Iterator

from vernacular.core.fingerprint import fingerprint
from vernacular.data.treebank.pairs import MASK, Pairs
from vernacular.data.treebank.sentences import Sentence, Word

_OPTIONAL = {"ADJ", "ADV", "PUNCT", "SYM", "DET", "NUM"}  # without these, a sentence usually stays correct
_NOUNS = {"NOUN", "PROPN"}
_NO_WORDS = {"PUNCT", "SYM"}


def corrupted_pairs(sentences: list[Sentence], pattern: dict) -> Pairs:
    """Return a row for every sentence with a place for the corruption, with the columns of `make_pairs`."""
    pairs = Pairs(pattern)
    places = {"delete": _deletions, "swap": _swaps}[pattern["corrupt"]]
    for sentence in filter(lambda sentence: sentence.words, sentences):
        pairs.targets += 1
        pairs.related += 1
        found = [place for place in places(sentence) if place[3] != sentence.text]
        if not found:
            pairs.reject("no place for this corruption", sentence, next(iter(sentence.words.values())))
            continue
        place = min(found, key=lambda place: fingerprint([pattern["corrupt"], sentence.id, place[0].id]))
        pairs.rows.append(_row(sentence, *place, pattern))
    return pairs


def _deletions(sentence: Sentence) -> Iterator[tuple[Word, str, str, str]]:
    """Yield (word, its text, the text in its place, the sentence without it)."""
    tags = [word.upos for word in sentence.words.values()]
    for index, word in enumerate(sentence.words.values()):
        neighbors = {*tags[max(0, index - 1) : index], *tags[index + 1 : index + 2]}
        if not index or word.start is None or word.upos in _OPTIONAL or (word.upos in _NOUNS and neighbors & _NOUNS):
            continue
        left, right = sentence.text[: word.start], sentence.text[word.end :]
        text = left + right[1:] if right[:1] == " " and left[-1:] == " " else left.rstrip() + right
        yield word, word.form, "", text


def _swaps(sentence: Sentence) -> Iterator[tuple[Word, str, str, str]]:
    """Yield (first word, both words, both in the other order, the sentence with them swapped)."""
    words = list(sentence.words.values())
    for word, neighbor in itertools.pairwise(words[1:]):
        if None in (word.start, neighbor.start) or sentence.text[word.end : neighbor.start] != " ":
            continue
        if {word.upos, neighbor.upos} & _NO_WORDS or word.upos == neighbor.upos:
            continue
        swapped = f"{neighbor.form} {word.form}"
        text = sentence.text[: word.start] + swapped + sentence.text[neighbor.end :]
        yield word, f"{word.form} {neighbor.form}", swapped, text


def _row(sentence: Sentence, word: Word, form: str, corrupted: str, text: str, pattern: dict) -> dict:
    prefix, suffix = sentence.text[: word.start], sentence.text[word.start + len(form) :]
    return {
        "sentence_id": sentence.id,
        "match_id": str(word.id),
        "original_text": sentence.text,
        "masked_text": prefix + MASK + suffix,
        "prompt_text": prefix.rstrip(),
        "form_grammatical": form,
        "form_ungrammatical": corrupted,
        "ungrammatical_text": text,
        "lemma": word.lemma,
        "upos": word.upos,
        "features": "",
        "swapped": "",
        "deprel": word.deprel,
        "distance": "",
        "phenomenon": pattern["phenomenon"],
        "pattern": pattern["pattern"],
        "treebank": sentence.file,
    }
