"""The rows of `source: {treebank: …, pattern: …}`: files had and checked, pairs made, everything counted."""

from pathlib import Path

from vernacular.core.errors import DataError
from vernacular.core.fingerprint import file_fingerprint
from vernacular.core.validate import shown
from vernacular.data import web
from vernacular.data.treebank.declared import called, entries
from vernacular.data.treebank.extract import extract


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
        path, digest = web.fetch(entry["url"], entry["sha256"])
        return {"path": path, "name": entry["url"], "sha256": digest, "pinned": entry["sha256"] is not None}
    path = entry["file"]
    try:
        digest = file_fingerprint(path)
    except FileNotFoundError:
        raise DataError(f"{shown(path)}: there is no such file.") from None
    except OSError as error:
        raise DataError(f"{shown(path)}: cannot be read ({error.strerror}).") from None
    if entry["sha256"] not in (None, digest):
        raise DataError(f"{shown(path)}: wrong checksum (sha256 {digest}, the task file says {entry['sha256']}).")
    return {"path": path, "name": shown(path), "sha256": digest, "pinned": True}
