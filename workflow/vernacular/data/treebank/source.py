"""Treebanks as data sources: local and downloaded files, extraction of minimal pairs, and searches with GREW.

Tasks without a pattern of words are minimal pairs of a sentence and the same one without a word, or with two words
swapped. The method is that of ScaLA (Nielsen 2023, ScandEval, NoDaLiDa), whose rules by part of speech leave out what
usually gives another correct sentence; here the two sentences of a pair stay together. One place per sentence is
selected by hash. The first word is not changed, because its capital letter would show it.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vernacular.core import hub_snapshot
from vernacular.core.errors import DataError, format_count
from vernacular.core.fingerprint import fingerprint
from vernacular.core.paths import display_path
from vernacular.data.readers import digest_of
from vernacular.data.treebank.pairs import Forms, Inflections, Pairs, make_pairs, pair_row, problem_of
from vernacular.data.treebank.patterns import entries, source_name
from vernacular.data.treebank.sentences import Match, Sentence, Word, read_sentences


def fetch(source: dict, directory) -> tuple[list[dict], list[dict], dict]:
    """Return (a row per pair, or per sentence of a pair; []; provenance) of a source as `resolve` returns it.

    Raises DataError if a file is unavailable or unreadable, or no pair is found.
    """
    directory = Path(directory)
    treebanks = [_fetch_file(entry) for entry in entries(source, "treebank", directory)]
    forms = [_fetch_file(entry) for entry in entries(source, "forms", directory)]
    names = {file["path"]: file["name"] for file in treebanks + forms}
    paths, form_paths = ([file["path"] for file in files] for files in (treebanks, forms))
    extraction = extract(paths, source["pattern"], form_paths, names)
    if not extraction.rows:
        raise DataError(f"{source_name(source)}: no pairs found; {_describe_counts(extraction)}.")
    unpinned = [file for file in treebanks + forms if not file["pinned"]]
    pin = "{name}: not pinned; to pin it, write {{url: …, sha256: {sha256}}}."
    warnings = [pin.format(**file) for file in unpinned]
    if extraction.mismatches:
        sentence_ids = ", ".join(extraction.mismatches[:3]) + (", …" if len(extraction.mismatches) > 3 else "")
        warnings.append(
            f"{source_name(source)}: {format_count(len(extraction.mismatches), 'sentence')} with a `# text` that "
            f"differs from the tokens ({sentence_ids}); the tokens are used."
        )
    for name, reasons in extraction.skipped_lines.items():
        warnings += [f"{name}: {format_count(count, 'line')} dropped ({reason})." for reason, count in reasons.items()]
    return (
        _sentences(extraction.rows) if source["unit"] == "sentence" else extraction.rows,
        [],
        {
            "kind": "treebank",
            "files": [file["name"] for file in treebanks],
            "forms": [file["name"] for file in forms],
            "file_sha256": ", ".join(file["sha256"] for file in treebanks + forms),
            "patterns": [pairs.pattern["pattern"] for pairs in extraction.pairs],
            "sentences": extraction.sentences,
            "words": extraction.words,
            "text_mismatches": len(extraction.mismatches),
            "rejected": dict(extraction.rejections),
            "first_rejected": {k: v for pairs in reversed(extraction.pairs) for k, v in pairs.first_rejected.items()},
            "warnings": warnings,
        },
    )


def _describe_counts(extraction) -> str:
    return "; ".join(
        f"{pairs.pattern['pattern']}: {format_count(pairs.targets, 'word')} matched the target, "
        f"{pairs.related} with related words" + "".join(f", {n} {reason}" for reason, n in pairs.rejections.items())
        for pairs in extraction.pairs
    )


def _sentences(rows: list[dict]) -> list[dict]:
    """Return the good and the bad sentences, one row each, with `text` and `label` (1: good, 0: bad)."""
    result = []
    for row in rows:
        result.append({**row, "text": row["original_text"], "label": 1})
        incorrect_columns = [name for name in row if name.startswith("ungrammatical_text")]
        result += [{**row, "text": row[name], "label": 0} for name in incorrect_columns]
    return result


def _fetch_file(entry: dict) -> dict:
    if "url" in entry:
        path, digest = hub_snapshot.fetch(entry["url"], entry["sha256"])
        return {"path": path, "name": entry["url"], "sha256": digest, "pinned": entry["sha256"] is not None}
    path = entry["file"]
    digest = digest_of(path, display_path(path), entry["sha256"])
    return {"path": path, "name": display_path(path), "sha256": digest, "pinned": True}


@dataclass
class Extraction:
    """Pairs from treebanks, by pattern; `mismatches` are sentences whose `# text` differs from their tokens."""

    sentences: int
    words: int
    mismatches: list[str]  # ids
    pairs: list[Pairs]
    skipped_lines: dict[str, dict[str, int]] = field(default_factory=dict)  # inflection table -> unused lines by reason

    @property
    def rows(self) -> list[dict]:
        return [row for pairs in self.pairs for row in pairs.rows]

    @property
    def rejections(self) -> Counter:
        """Number of matches without a pair by reason, over all patterns."""
        return sum((pairs.rejections for pairs in self.pairs), Counter())


def extract(treebanks: list, patterns: list[dict], forms: list | None = None, names: dict | None = None) -> Extraction:
    """Extract the pairs of all `patterns`, as `load_pattern` returns them, from CoNLL-U files, with `names` for
    messages.

    `forms`: files with further word forms, CoNLL-U (….conllu) or UniMorph. Raises DataError.
    """
    names = names or {}
    sentences = _make_ids_unique([sentence for path in treebanks for sentence in read_sentences(path, names.get(path))])
    extra_sentences, tables = [], {}
    for path in forms or []:
        if ".conllu" in Path(str(names.get(path, path))).suffixes:
            extra_sentences += read_sentences(path, names.get(path))
        else:
            tables[str(names.get(path, path))] = Inflections(path, names.get(path))
    word_forms = Forms(sentences + extra_sentences, tables.values())
    pairs = [
        corrupted_pairs(sentences, pattern)
        if "corrupt" in pattern
        else make_pairs(
            sentences, pattern, word_forms, search(treebanks, sentences, pattern) if "grew" in pattern else None
        )
        for pattern in patterns
    ]
    return Extraction(
        sentences=len(sentences),
        words=sum(len(sentence.words) for sentence in sentences),
        mismatches=[sentence.id for sentence in sentences if sentence.mismatch],
        pairs=pairs,
        skipped_lines={name: table.skipped for name, table in tables.items() if table.skipped},
    )


def _make_ids_unique(sentences: list[Sentence]) -> list[Sentence]:
    """Make sentence IDs unique in place: the second sentence with the same ID gets the suffix ~2."""
    seen: Counter = Counter()
    for sentence in sentences:
        seen[sentence.id] += 1
        if seen[sentence.id] > 1:
            sentence.id += f"~{seen[sentence.id]}"
    return sentences


_SUPPORTED_CONSTRAINTS = (
    "Vernacular's own patterns require neither: constraints on upos, xpos, lemma, form, deprel and feats of a target, "
    "on its head, child, sibling or any word, on their order, distance and agreement, and on words that must not exist."
)


def search(paths: list, sentences: list[Sentence], pattern: dict) -> list[tuple[Sentence, Match]]:
    """Return the first match by target of the pattern's GREW request in the files `paths` with `sentences`.

    Raises DataError if GREW is not installed or rejects it, or IDs of sentences are not unique.
    """
    grewpy = _grewpy(pattern)
    try:
        grewpy.set_config("ud")
        corpus = grewpy.Corpus([str(path) for path in paths])
        ids = corpus.get_sent_ids()
        results = corpus.search(grewpy.Request(pattern["grew"]))
    except grewpy.grew.GrewError as error:
        value = error.value
        reason = str(value.get("message", value) if isinstance(value, dict) else value).strip()
        raise DataError(f"pattern {pattern['pattern']}: GREW rejected the request ({reason}).") from None
    if len(ids) != len(sentences) or len(set(ids)) != len(ids):
        raise DataError(f"pattern {pattern['pattern']}: GREW requires a unique sent_id for every sentence.")
    indices = {name: position for position, name in enumerate(ids)}
    matches: dict[tuple[int, int], Match] = {}
    for result in results:
        index, nodes = indices[result["sent_id"]], result["matching"]["nodes"]
        if pattern["target"] not in nodes:
            raise DataError(f'pattern {pattern["pattern"]}: node "{pattern["target"]}" not found in the request.')
        words_by_id = sentences[index].words
        numbers = {name: int(node) for name, node in nodes.items() if node.isdecimal()}
        words = {name: words_by_id[number] for name, number in numbers.items() if number in words_by_id}
        target = words.pop(pattern["target"], None)
        if target is not None:  # an empty node is not a word of the text
            matches.setdefault((index, target.id), Match(target, {"target": target, **words}))
    return [(sentences[index], match) for (index, _), match in sorted(matches.items(), key=lambda entry: entry[0])]


def _grewpy(pattern: dict):
    try:
        import grewpy  # starts its backend, and fails if it is not installed
        import grewpy.grew
    except (ImportError, OSError, SystemExit, ValueError) as error:
        missing = "grewpy" if isinstance(error, ImportError) else "its backend, grewpy_backend,"
        raise DataError(
            f"pattern {pattern['pattern']}: is a GREW request, but {missing} is not installed "
            f"(see grew.fr).\n{_SUPPORTED_CONSTRAINTS}"
        ) from None
    return grewpy


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
        found = list(places(sentence))
        problems = [problem_of(sentence, words) for words, *_ in found]
        sound = [
            place for place, problem in zip(found, problems, strict=True) if not problem and place[3] != sentence.text
        ]
        if not sound:
            reason = next(filter(None, problems), "no place for this corruption")
            pairs.reject(reason, sentence, next(iter(sentence.words.values())))
            continue
        place = min(sound, key=lambda place: fingerprint([pattern["corrupt"], sentence.id, place[0][0].id]))
        (word, *_), form, replacement, text = place
        pairs.rows.append(pair_row(sentence, word, form, [(replacement, text)], pattern))
    return pairs


def _first_word(words: list[Word]) -> int:
    """Return the index of the first word, which has the capital letter: after "¿", a quotation mark or a dash."""
    return next((index for index, word in enumerate(words) if word.upos not in _NO_WORDS), 0)


def _deletions(sentence: Sentence) -> Iterator[tuple[tuple[Word, ...], str, str, str]]:
    """Yield ((word,), its text, the text in its place, the sentence without it)."""
    words = list(sentence.words.values())
    tags = [word.upos for word in words]
    for index in range(_first_word(words) + 1, len(words)):
        word, neighbors = words[index], {tags[index - 1], *tags[index + 1 : index + 2]}
        if word.start is None or word.upos in _OPTIONAL or (word.upos in _NOUNS and neighbors & _NOUNS):
            continue
        left, right = sentence.text[: word.start], sentence.text[word.end :]
        is_after_space = left[-1:] == " " or tags[index - 1] in _NO_WORDS  # or after an opening bracket
        text = left + right[1:] if right[:1] == " " and is_after_space else left.rstrip() + right
        yield (word,), word.form, "", text


def _swaps(sentence: Sentence) -> Iterator[tuple[tuple[Word, ...], str, str, str]]:
    """Yield ((first word, second word), both words, both in the other order, the sentence with them swapped)."""
    words = list(sentence.words.values())
    for word, neighbor in itertools.pairwise(words[_first_word(words) + 1 :]):
        if None in (word.start, neighbor.start) or sentence.text[word.end : neighbor.start] != " ":
            continue
        if {word.upos, neighbor.upos} & _NO_WORDS or word.upos == neighbor.upos:
            continue
        swapped = f"{neighbor.form} {word.form}"
        text = sentence.text[: word.start] + swapped + sentence.text[neighbor.end :]
        yield (word, neighbor), f"{word.form} {neighbor.form}", swapped, text
