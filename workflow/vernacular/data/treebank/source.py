"""Treebanks as sources: files, releases and repositories; extraction of minimal pairs; pairs that Grew-TSE wrote."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from vernacular.core import hub_snapshot
from vernacular.core.errors import DataError
from vernacular.core.fingerprint import file_fingerprint
from vernacular.core.paths import display_path
from vernacular.data.treebank import source
from vernacular.data.treebank.forms import Forms, Inflections
from vernacular.data.treebank.match import Match
from vernacular.data.treebank.pairs import Pairs, make_pairs
from vernacular.data.treebank.patterns import called, entries
from vernacular.data.treebank.sentences import Sentence, read_sentences


def fetch(source: dict, folder) -> tuple[list[dict], list[dict], dict]:
    """(a row per pair, or per sentence of a pair; []; provenance) of a source as `resolve` gives it.

    Provenance: files with their sha256, patterns, sentences, words, text_mismatches, left_out (matches that are no
    pair, by reason), warnings. Raises DataError where a file cannot be had or read, or nothing is found.
    """
    folder = Path(folder)
    treebanks = [_had(entry) for entry in entries(source, "treebank", folder)]
    forms = [_had(entry) for entry in entries(source, "forms", folder)]
    names = {file["path"]: file["name"] for file in treebanks + forms}
    found = extract([f["path"] for f in treebanks], source["pattern"], [f["path"] for f in forms], names)
    if not found.rows:
        raise DataError(f"{called(source)}: not one pair; {_nothing(found)}.")
    warnings = [
        f"{f['name']}: not pinned; to pin it, write {{url: …, sha256: {f['sha256']}}}."
        for f in treebanks + forms
        if not f["pinned"]
    ]
    if found.mismatches:
        warnings.append(
            f"{called(source)}: {len(found.mismatches)} sentences whose `# text` is not their tokens put together "
            f"({', '.join(found.mismatches[:3])}…); the tokens count."
        )
    for name, reasons in found.unused.items():
        warnings += [f"{name}: lines left out ({reason}): {n}." for reason, n in reasons.items()]
    return (
        _sentences(found.rows) if source["each"] == "sentence" else found.rows,
        [],
        {
            "kind": "treebank",
            "files": [f["name"] for f in treebanks],
            "forms": [f["name"] for f in forms],
            "file_sha256": ", ".join(f["sha256"] for f in treebanks + forms),
            "patterns": [pairs.pattern["pattern"] for pairs in found.pairs],
            "sentences": found.sentences,
            "words": found.words,
            "text_mismatches": len(found.mismatches),
            "left_out": dict(found.left_out),
            "warnings": warnings,
        },
    )


def _nothing(found) -> str:
    return "; ".join(
        f"{p.pattern['pattern']}: {p.targets} words fit the target, {p.related} of them match"
        + "".join(f", {n} {reason}" for reason, n in p.left_out.items())
        for p in found.pairs
    )


def _sentences(rows: list[dict]) -> list[dict]:
    """The good and the bad sentences, a row each, with `text` and `label`."""
    result = []
    for row in rows:
        result.append({**row, "text": row["original_text"], "label": 1})
        wrong = [name for name in row if name.startswith("ungrammatical_text")]
        result += [{**row, "text": row[name], "label": 0} for name in wrong]
    return result


def _had(entry: dict) -> dict:
    if "url" in entry:
        path, digest = hub_snapshot.fetch(entry["url"], entry["sha256"])
        return {"path": path, "name": entry["url"], "sha256": digest, "pinned": entry["sha256"] is not None}
    path = entry["file"]
    try:
        digest = file_fingerprint(path)
    except FileNotFoundError:
        raise DataError(f"{display_path(path)}: there is no such file.") from None
    except OSError as error:
        raise DataError(f"{display_path(path)}: cannot be read ({error.strerror}).") from None
    if entry["sha256"] not in (None, digest):
        stated = entry["sha256"]
        raise DataError(f"{display_path(path)}: wrong checksum (sha256 {digest}, the task file says {stated}).")
    return {"path": path, "name": display_path(path), "sha256": digest, "pinned": True}


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
        make_pairs(
            sentences, pattern, known, source.search(treebanks, sentences, pattern) if "grew" in pattern else None
        )
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


_OURS = (
    "Patterns of ours need neither: constraints on upos, xpos, lemma, form, deprel and feats of a target, on its head, "
    "child, sibling or any word, their order, distance and agreement, and on words that must not be there."
)


def search(paths: list, sentences: list[Sentence], pattern: dict) -> list[tuple[Sentence, Match]]:
    """Every match of the pattern's request in the files at `paths`, whose sentences in order are `sentences`.

    A word that several matches have as their target comes once. Raises DataError where GREW is not installed or
    refuses the request.
    """
    grewpy = _grewpy(pattern)
    try:
        grewpy.set_config("ud")
        corpus = grewpy.Corpus([str(path) for path in paths])
        ids = corpus.get_sent_ids()
        answers = corpus.search(grewpy.Request(pattern["grew"]))
    except grewpy.grew.GrewError as error:
        raise DataError(f"Pattern {pattern['pattern']}: GREW refuses the request: {_said(error)}") from None
    if len(ids) != len(sentences) or len(set(ids)) != len(ids):
        raise DataError(f"Pattern {pattern['pattern']}: GREW needs a sent_id of its own for every sentence.")
    places = {name: number for number, name in enumerate(ids)}
    found: dict[tuple[int, int], Match] = {}
    for answer in answers:
        place, nodes = places[answer["sent_id"]], answer["matching"]["nodes"]
        if pattern["target"] not in nodes:
            raise DataError(f'Pattern {pattern["pattern"]}: its request has no node "{pattern["target"]}".')
        known = sentences[place].words
        words = {name: known[int(node)] for name, node in nodes.items() if node.isdecimal() and int(node) in known}
        target = words.pop(pattern["target"], None)
        if target is not None:  # an empty node is no word of the text
            found.setdefault((place, target.id), Match(target, {"target": target, **words}))
    return [(sentences[place], match) for (place, _), match in sorted(found.items(), key=lambda entry: entry[0])]


def _grewpy(pattern: dict):
    try:
        import grewpy  # starts its backend, and fails where there is none
        import grewpy.grew
    except (ImportError, OSError, SystemExit, ValueError) as error:
        missing = "grewpy" if isinstance(error, ImportError) else "its backend, grewpy_backend,"
        raise DataError(
            f"Pattern {pattern['pattern']} is a GREW request, and {missing} is not installed (see grew.fr).\n{_OURS}"
        ) from None
    return grewpy


def _said(error) -> str:
    value = error.value
    return str(value.get("message", value) if isinstance(value, dict) else value).strip()
