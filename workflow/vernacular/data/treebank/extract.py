"""Treebanks and patterns -> pairs, with everything counted that a linguist needs to trust or tune them."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from vernacular.data.treebank import grew
from vernacular.data.treebank.forms import Forms
from vernacular.data.treebank.pairs import Pairs, make_pairs
from vernacular.data.treebank.sentences import Sentence, read_sentences
from vernacular.data.treebank.unimorph import Inflections


@dataclass
class Extracted:
    """What came out of the treebanks, by pattern; `mismatches` are sentences whose `# text` is not their tokens."""

    sentences: int
    words: int
    mismatches: list[str]  # ids
    pairs: list[Pairs]
    unused: dict[str, dict[str, int]] = field(default_factory=dict)  # inflection table -> lines left out, by reason

    @property
    def rows(self) -> list[dict]:
        return [row for pairs in self.pairs for row in pairs.rows]

    @property
    def left_out(self) -> Counter:
        """Matches that are no pair, by reason, over all patterns."""
        return sum((pairs.left_out for pairs in self.pairs), Counter())


def extract(treebanks: list, patterns: list[dict], forms: list | None = None, names: dict | None = None) -> Extracted:
    """Pairs of all `patterns` (as `load_pattern` gives them) from CoNLL-U files.

    Wrong forms are those that these files attest, and the further files `forms`: CoNLL-U (named …conllu), or else in
    UniMorph's format. `names`: what to call a file in a complaint, by path. Raises DataError naming file and line.
    """
    names = names or {}
    sentences = _numbered([s for path in treebanks for s in read_sentences(path, names.get(path))])
    more, tables = [], {}
    for path in forms or []:
        if is_treebank(names.get(path, path)):
            more += read_sentences(path, names.get(path))
        else:
            tables[str(names.get(path, path))] = Inflections(path, names.get(path))
    known = Forms(sentences + more, tables.values())
    pairs = [
        make_pairs(sentences, pattern, known, grew.search(treebanks, sentences, pattern) if "grew" in pattern else None)
        for pattern in patterns
    ]
    return Extracted(
        sentences=len(sentences),
        words=sum(len(sentence.words) for sentence in sentences),
        mismatches=[sentence.id for sentence in sentences if sentence.mismatch],
        pairs=pairs,
        unused={name: table.skipped for name, table in tables.items() if table.skipped},
    )


def is_treebank(name) -> bool:
    """Does a file's name say CoNLL-U?"""
    return ".conllu" in Path(str(name)).suffixes


def _numbered(sentences: list[Sentence]) -> list[Sentence]:
    """Sentences with ids of their own: the second with one id gets a ~2 behind it."""
    seen: Counter = Counter()
    for sentence in sentences:
        seen[sentence.id] += 1
        if seen[sentence.id] > 1:
            sentence.id += f"~{seen[sentence.id]}"
    return sentences
