"""Loading of the items of a task in one language: from its sources, the shipped samples, or a user-provided file."""

import hashlib
import json
from pathlib import Path

from vernacular.core.errors import ConfigError, DataError, closest, counted
from vernacular.core.fingerprint import file_fingerprint
from vernacular.core.paths import WORKFLOW
from vernacular.data.columns import check_columns
from vernacular.data.items import make_items, sample
from vernacular.data.lm_eval.items import lay_out as lm_eval_items
from vernacular.data.readers import form_of, read_rows
from vernacular.data.treebank.patterns import is_local as is_local_treebank


def load_items(
    task: dict, language: str, *, source="hub", limit: int | None = None, seed: int = 0, root: Path = WORKFLOW
) -> tuple[list[dict], dict]:
    """Load the items of a task in one language.

    Args:
        task: The task, as `load_task` returns it.
        source: "hub" for the sources in the task file, "samples" for `root/samples/{task}/{language}/`, or the path of
            a data file, or of a directory with files `{task}/{language}/{split}.*`.
        limit: The maximum number of evaluated items (see `sample`); rows of the `few_shot` split are not counted.

    Returns:
        (rows per ITEMS, metadata). Metadata: task, language, citation (None if the task file has none), source (origin,
        revision, sha256 of the raw rows, license), rows (read, kept, dropped and repaired with counts per reason,
        duplicates, taken), few_shot_examples (the same counts for the few-shot examples), expected_rows, limit, seed,
        warnings (sentences).

    Raises:
        ConfigError: The task does not have the language.
        DataError: The dataset is unavailable, unreadable, or without a valid row.
    """
    entry = task["languages"].get(language)
    if entry is None:
        raise ConfigError(
            f'task {task["task"]}: language "{language}" not found.{closest(language, task["languages"])}'
        )
    rows, shots, provenance = _raw(task, language, entry, source, Path(root))
    items, counts, examples, example_counts = _laid_out(task, entry, rows, shots, provenance)
    for reason, n in provenance.pop("left_out", {}).items():  # matches in a treebank without a minimal pair
        counts["read"] += n
        counts["dropped"][reason] = counts["dropped"].get(reason, 0) + n
    if not items:
        raise DataError(f"{task['task']} ({language}): no row can be evaluated: {_reasons(counts)}.")
    if provenance.get("few_shot") and not examples:  # with other examples it would be another task
        reasons = _reasons(example_counts)
        raise DataError(f"{task['task']} ({language}): no few-shot example can be used: {reasons}.")
    warnings = provenance.pop("warnings", [])
    kept = sample(items + examples, limit, seed)
    expected = entry["expected_rows"] if source == "hub" else None
    if provenance["kind"] != "samples" and provenance.get("license") in (None, "unknown", "other"):
        provenance["license"] = entry["license"] or provenance.get("license")
    metadata = {
        "task": task["task"],
        "language": language,
        "citation": task.get("citation"),
        "source": provenance | {"sha256": _digest(rows, shots)},
        "rows": counts | {"taken": sum(not item["few_shot"] for item in kept)},
        "few_shot_examples": example_counts,
        "expected_rows": expected,
        "limit": limit,
        "seed": seed,
        "warnings": _warnings(f"{task['task']} ({language})", counts, example_counts, expected, provenance)
        + entry.get("lm_eval", {}).get("notes", [])
        + warnings,
    }
    return kept, metadata


def _laid_out(
    task: dict, entry: dict, rows: list[dict], shots: list[dict], provenance: dict
) -> tuple[list[dict], dict, list[dict], dict]:
    """Return (items, counts of their rows, few-shot examples, counts of their rows)."""
    if "lm_eval" in entry:
        return lm_eval_items(rows, shots, entry["lm_eval"], Path(task["folder"]), provenance)
    solved = make_items(shots, task["item_type"], entry["columns"], few_shot=True)
    return (*make_items(rows, task["item_type"], entry["columns"]), *solved)


def _raw(task: dict, language: str, entry: dict, source, root: Path) -> tuple[list[dict], list[dict], dict]:
    """Return (rows, few-shot rows, provenance) of the first source that is available and has the expected columns."""
    if source == "samples" and (found := _samples(task, language, entry, root / "samples")):
        return found
    if source == "samples" and "file" not in entry["source"][0] and not is_local_treebank(entry["source"][0]):
        raise DataError(f"{task['task']} ({language}): samples not found; set data: hub to use the complete dataset.")
    if source not in ("hub", "samples"):
        return _local(task, language, entry, Path(source))
    failed: list[DataError] = []
    for number, one in enumerate(entry["source"]):
        try:
            rows, shots, provenance = _fetch(one, Path(task["folder"]))
            check_columns(rows, entry["columns"], _called(one))
            return rows, shots, provenance | ({"layout": number + 1} if len(entry["source"]) > 1 else {})
        except DataError as error:
            failed.append(error)
    others = "".join(f"\nAlso tried: {error}" for error in failed[1:] if str(error) != str(failed[0]))
    raise DataError(f"{task['task']} ({language}): {failed[0]}{others}")


def _fetch(source: dict, folder: Path) -> tuple[list[dict], list[dict], dict]:
    if "treebank" in source:
        from vernacular.data.treebank.source import fetch

        return fetch(source, folder)
    if "url" in source:
        from vernacular.core import hub_snapshot

        path, digest = hub_snapshot.fetch(source["url"], source.get("sha256"))
        provenance = {
            "kind": "url",
            "url": source["url"],
            "split": source.get("split"),
            "file_sha256": digest,
            "pinned": "sha256" in source,
        }
        return read_rows(path, source.get("format"), name=source["url"]), [], provenance
    if "file" in source and not source["file"].startswith("hf://"):
        return _file(source, folder)
    from vernacular.data import hub  # here, because importing `datasets` takes a second

    if "file" in source:
        source = source | hub.from_uri(source["file"])
    return hub.fetch(source)


def _file(source: dict, folder: Path) -> tuple[list[dict], list[dict], dict]:
    path = _beside(source["file"], folder)
    rows = read_rows(path, source.get("format"), name=str(path))
    digest = file_fingerprint(path)
    if source.get("sha256", digest) != digest:
        stated = source["sha256"]
        raise DataError(
            f"{source['file']}: checksum mismatch (expected sha256 {stated} as in the task file, got {digest})."
        )
    few = source.get("few_shot")
    shots = read_rows(_beside(few, folder), source.get("format")) if few else []
    return rows, shots, {"kind": "file", "file": source["file"], "few_shot": few, "file_sha256": digest}


def _beside(name: str, folder: Path) -> Path:
    path = Path(name).expanduser()
    return path if path.is_absolute() else folder / path


def _samples(task: dict, language: str, entry: dict, samples: Path) -> tuple[list[dict], list[dict], dict] | None:
    folder = samples / task["task"] / language
    if not folder.is_dir():
        return None
    return _from_folder(task, folder, entry, {"kind": "samples", "folder": folder.relative_to(samples).as_posix()})


def _local(task: dict, language: str, entry: dict, path: Path) -> tuple[list[dict], list[dict], dict]:
    if path.is_dir():
        folder = path / task["task"] / language
        return _from_folder(task, folder, entry, {"kind": "file", "file": str(folder)})
    if "treebank" in entry["source"][0]:
        return _fetch({**entry["source"][0], "treebank": str(path.absolute())}, path.parent)
    rows = read_rows(path)
    check_columns(rows, entry["columns"], str(path))
    return rows, [], {"kind": "file", "file": str(path), "file_sha256": file_fingerprint(path)}


def _from_folder(task: dict, folder: Path, entry: dict, provenance: dict) -> tuple[list[dict], list[dict], dict]:
    """Read the files named after the splits; if there are none, the only file that is not the few-shot split.

    Of a treebank, read all CoNLL-U files in the directory.
    """
    if "treebank" in entry["source"][0]:
        own = {key: entry["source"][0][key] for key in ("pattern", "each")}
        rows, shots, found = _fetch({**own, "treebank": "*.conllu*"}, folder)
        return rows, shots, found | provenance
    files: dict[str, Path] = {}
    for file in sorted(folder.glob("*")):
        if form_of(file.name):
            split = file.name.removesuffix(".gz").rsplit(".", 1)[0]
            if split in files:
                raise DataError(
                    f"{folder}: {files[split].name} and {file.name} are both the split {split}; remove one."
                )
            files[split] = file
    splits = [s["split"] for s in entry["source"] if "split" in s]
    fews = [s["few_shot"] for s in entry["source"] if "few_shot" in s]
    split = next((s for s in splits if s in files), None)
    few = next((s for s in fews if s in files and s != split), None)
    if split is None and len(files.keys() - {few}) == 1:
        split = next(iter(files.keys() - {few}))
    if split is None:
        raise DataError(f"{folder}: file of the split {' or '.join(splits) or 'of this task'} not found.")
    rows = read_rows(files[split])
    check_columns(rows, entry["columns"], str(files[split]))
    return rows, read_rows(files[few]) if few else [], provenance | {"split": split, "few_shot": few}


def _called(source: dict) -> str:
    return source.get("hub") or source.get("url") or source.get("file") or str(source["treebank"])


def _digest(rows: list[dict], shots: list[dict]) -> str:
    """Return the SHA-256 (hex) of the raw rows in order, evaluated split first."""
    digest = hashlib.sha256()
    for row in rows + shots:
        line = json.dumps(row, ensure_ascii=True, sort_keys=True, default=str) + "\n"
        digest.update(line.encode("ascii"))
    return digest.hexdigest()


def _reasons(counts: dict) -> str:
    return ", ".join(f"{reason} ({n})" for reason, n in counts["dropped"].items()) or "the dataset has no rows"


def _warnings(name: str, counts: dict, example_counts: dict, expected: int | None, provenance: dict) -> list[str]:
    warnings = []
    if expected is not None and counts["read"] != expected:
        rows = f"expected {expected} rows as in the task file, got {counts['read']}"
        warnings.append(f"{name}: {rows}; the dataset has changed upstream.")
    for noun, found in (("row", counts), ("few-shot example", example_counts)):
        for reason, n in found["dropped"].items():
            first = found.get("first_dropped", {}).get(reason)
            where = "" if first is None else f" The first is row {first + 1} of {found['read']}."
            warnings.append(f"{name}: {counted(n, noun)} dropped ({reason}).{where}")
    if provenance.get("pinned") is False:
        warnings.append(f"{name}: not pinned; to pin it, add sha256: {provenance['file_sha256']} to the task file.")
    return warnings
