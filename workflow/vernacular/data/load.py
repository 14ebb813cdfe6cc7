"""Loading of the items of a task in one language: from its sources, the shipped samples, or a user-provided file.

Raw rows become items with unique IDs; rejected rows are counted, and a limit draws a seeded sample.
"""

import hashlib
import json
from collections import Counter
from pathlib import Path

from vernacular.core.errors import ConfigError, DataError, format_count, suggest
from vernacular.core.fields import as_list
from vernacular.core.fingerprint import file_fingerprint, fingerprint
from vernacular.core.languages import script_of, wordings_message
from vernacular.core.paths import WORKFLOW
from vernacular.data.audit import folded, leaked
from vernacular.data.columns import (
    Cells,
    RowRejected,
    as_text,
    check_columns,
    find,
    is_selected,
    location_of,
    replace_surrogates,
    samples_name,
)
from vernacular.data.layouts import CONVERTERS, answer_alphabet, check_numbering
from vernacular.data.readers import detect_format, digest_of, read_rows, typed
from vernacular.data.treebank.patterns import is_local as is_local_treebank


def load_items(
    task: dict, language: str, *, source="hub", limit: int | None = None, seed: int = 0, root: Path = WORKFLOW
) -> tuple[list[dict], dict]:
    """Return (rows per ITEMS, fields of ItemsMetadata) of a task, as `load_task` returns it, in one language.

    `source`: "hub", "samples" (`root/samples/{task}/{language}/`), or the path of a data file, or of a directory with
    files `{task}/{language}/{split}.*`. `limit`: largest number of evaluated items.

    Raises ConfigError if the task lacks the language, and DataError if the dataset is unavailable, unreadable or empty.
    """
    entry = task["languages"].get(language)
    if entry is None:
        hint = suggest(language, task["languages"])
        raise ConfigError(f'task {task["task"]}: language "{language}" not found.{hint}')
    if lacking := entry.get("lacks"):
        raise ConfigError(wordings_message(language, lacking, task["directory"]))
    name = f"{task['task']} ({language})"
    rows, few_shot_rows, provenance = _load_rows(task, language, entry, source, Path(root))
    if other := entry.get("join"):
        _join(task, entry, other, (rows, few_shot_rows), source, Path(root))
    for split_rows in (rows, few_shot_rows):
        selected = [row for row in split_rows if is_selected(row, entry["columns"])]
        check_numbering(selected, entry["columns"], name)
    examples, example_counts = make_items(few_shot_rows, task["item_type"], entry["columns"], few_shot=True)
    items, counts = make_items(rows, task["item_type"], entry["columns"])
    for reason, count in provenance.pop("rejected", {}).items():  # matches in a treebank without a minimal pair
        counts["read"] += count
        counts["dropped"][reason] = counts["dropped"].get(reason, 0) + count
    counts["first_dropped"] = provenance.pop("first_rejected", {}) | counts["first_dropped"]
    if not items:
        raise DataError(f"{name}: no row can be evaluated: {_reasons(counts)}.")
    if provenance.get("few_shot") and not examples:  # with other examples it would be another task
        raise DataError(f"{name}: no few-shot example can be used: {_reasons(example_counts)}.")
    warnings = provenance.pop("warnings", [])
    mark_repeats(items + examples)
    nearly = leaked([item for item in examples if item["repeats"] is None], items)
    for example in examples:
        example["repeats"] = example["repeats"] or nearly.get(example["item_id"])
    sampled_items = sample(items + examples, limit, seed)
    if leaks := [item for item in examples if item["repeats"] is not None]:
        location = location_of(few_shot_rows[leaks[0]["source_row"]], leaks[0]["source_row"])
        count = format_count(len(leaks), "few-shot example")
        leak = f"{location}: item {leaks[0]['repeats']}"
        warnings.append(
            f"{name}: {count} with the content of an evaluated item, or nearly: not sampled. The first: {leak}."
        )
    expected = entry["expected_rows"] if source == "hub" else None
    if provenance["kind"] != "samples" and provenance.get("license") in (None, "unknown", "other"):
        provenance["license"] = entry["license"] or provenance.get("license")
    texts = (text for item in sampled_items for text in (item["context"], item["question"], *item["choices"]))
    metadata = {
        "task": task["task"],
        "language": language,
        "citation": task.get("citation"),
        "script": script_of(texts),
        "source": provenance | {"sha256": _digest(rows, few_shot_rows)},
        "rows": counts | {"evaluated": sum(not item["few_shot"] for item in sampled_items)},
        "few_shot_examples": example_counts,
        "expected_rows": expected,
        "limit": limit,
        "seed": seed,
        "warnings": _warnings(name, counts, example_counts, expected, provenance) + warnings,
    }
    return sampled_items, metadata


def _load_rows(task: dict, language: str, entry: dict, source, root: Path) -> tuple[list[dict], list[dict], dict]:
    """Return (rows, few-shot rows, provenance) of the first source that is available and has the expected columns."""
    directory = Path("samples", samples_name(task), language)
    if source == "samples" and (root / directory).is_dir():
        provenance = {"kind": "samples", "directory": directory.relative_to("samples").as_posix()}
        return _load_directory(task, root / directory, entry, provenance)
    if source == "samples" and "file" not in entry["source"][0] and not is_local_treebank(entry["source"][0]):
        raise DataError(f"{task['task']} ({language}): samples not found; set data: hub to use the complete dataset.")
    if source not in ("hub", "samples"):
        return _load_local(task, language, entry, Path(source))
    errors: list[DataError] = []
    for index, spec in enumerate(entry["source"]):
        try:
            rows, few_shot_rows, provenance = _fetch(spec, Path(task["directory"]))
            if "clusters" in spec:
                _read_clusters(rows, spec, Path(task["directory"]))
            location = spec.get("hub") or spec.get("url") or spec.get("file") or str(spec["treebank"])
            check_columns(rows, entry["columns"], location)
            return rows, few_shot_rows, provenance | ({"layout": index + 1} if len(entry["source"]) > 1 else {})
        except DataError as error:
            errors.append(error)
    other_errors = "".join(f"\nAlso tried: {error}" for error in errors[1:] if str(error) != str(errors[0]))
    raise DataError(f"{task['task']} ({language}): {errors[0]}{other_errors}")


def read_source(source: dict, directory: Path) -> list[dict]:
    """Return the rows of one source of a task file in `directory`; raises DataError as `load_items` does."""
    return _fetch(source, directory)[0]


def _join(task: dict, entry: dict, other: dict, splits: tuple[list, list], source, root: Path) -> None:
    """Set `_joined` of each row to that of the language `join` with its ID and split; raise DataError for equal IDs."""
    name = f"{task['task']} ({other['language']})"
    for split_rows, other_rows in zip(splits, _load_rows(task, other["language"], other, source, root), strict=False):
        by_id: dict[str, dict] = {}
        for row_index, row in enumerate(other_rows):
            item_id = _upstream_id({**row, "_row": row_index}, other["columns"])
            if by_id.setdefault(item_id, row) is not row:
                raise DataError(f'{name}: two rows have the ID "{item_id}", by which languages are joined.')
        for row_index, row in enumerate(split_rows):
            row["_joined"] = by_id.get(_upstream_id({**row, "_row": row_index}, entry["columns"]))
        if split_rows:
            check_columns(split_rows, entry["columns"], name)


def _read_clusters(rows: list[dict], source: dict, directory: Path) -> None:
    """Set `_cluster` of each row to the text on its line of the source's file `clusters`."""
    kind = "url" if source["clusters"].startswith(("http://", "https://")) else "file"
    lines, _, _ = _fetch({kind: source["clusters"], "format": "lines"}, directory)
    if len(lines) != len(rows):
        raise DataError(f"{source['clusters']}: expected a line for each of {len(rows)} rows, got {len(lines)}.")
    for row, line in zip(rows, lines, strict=True):
        row["_cluster"] = line["text"]


def _fetch(source: dict, directory: Path) -> tuple[list[dict], list[dict], dict]:
    if "treebank" in source:
        from vernacular.data.treebank.source import fetch

        rows, few_shot_rows, provenance = fetch(source, directory)
        return typed(rows), few_shot_rows, provenance
    if "hub" in source or source.get("file", "").startswith("hf://"):
        from vernacular.data import hub  # here, because importing `datasets` takes a second

        return hub.fetch(source if "hub" in source else source | hub.from_uri(source["file"]))
    kind = "url" if "url" in source else "file"
    rows, digest = _read_file(source[kind], source.get("sha256"), source, directory)
    provenance = {"kind": kind, kind: source[kind], "split": source.get("split"), "file_sha256": digest}
    provenance |= {"pinned": "sha256" in source} if kind == "url" else {}
    if "few_shot" not in source:
        return rows, [], provenance
    few_shot_rows, _ = _read_file(source["few_shot"], None, source, directory)
    return rows, few_shot_rows, provenance | {"few_shot": source["few_shot"]}


def _read_file(location: str, sha256: str | None, source: dict, directory: Path) -> tuple[list[dict], str]:
    """Return (rows, SHA-256) of a file of a source; raise DataError if it has another than the task file states."""
    if "url" in source:
        from vernacular.core import hub_snapshot

        path, digest = hub_snapshot.fetch(location, sha256)
        return read_rows(path, source.get("format"), name=location, header=source.get("header")), digest
    path = directory / Path(location).expanduser()
    rows = read_rows(path, source.get("format"), header=source.get("header"))
    return rows, digest_of(path, location, sha256)


def _load_local(task: dict, language: str, entry: dict, path: Path) -> tuple[list[dict], list[dict], dict]:
    if path.is_dir():
        directory = path / task["task"] / language
        return _load_directory(task, directory, entry, {"kind": "file", "file": str(directory)})
    if "treebank" in entry["source"][0]:
        return _fetch({**entry["source"][0], "treebank": str(path.absolute())}, path.parent)
    rows = read_rows(path)
    check_columns(rows, entry["columns"], str(path))
    return rows, [], {"kind": "file", "file": str(path), "file_sha256": file_fingerprint(path)}


def _load_directory(task: dict, directory: Path, entry: dict, provenance: dict) -> tuple[list[dict], list[dict], dict]:
    """Read the files named after the splits, else the only one that is not few-shot; of a treebank, all CoNLL-U."""
    if "treebank" in entry["source"][0]:
        settings = {key: entry["source"][0][key] for key in ("pattern", "unit")}
        rows, few_shot_rows, metadata = _fetch({**settings, "treebank": "*.conllu*"}, directory)
        return rows, few_shot_rows, metadata | provenance
    files: dict[str, Path] = {}
    for file in sorted(directory.glob("*")):
        if detect_format(file.name):
            split = file.name.removesuffix(".gz").rsplit(".", 1)[0]
            if (other := files.setdefault(split, file)) is not file:
                raise DataError(f"{directory}: {other.name} and {file.name} are both the split {split}; remove one.")
    splits = [spec["split"] for spec in entry["source"] if "split" in spec]
    few_shot_splits = [spec["few_shot"] for spec in entry["source"] if "few_shot" in spec]
    split = next((name for name in splits if name in files), None)
    few_shot_split = next((name for name in few_shot_splits if name in files and name != split), None)
    if split is None and len(files.keys() - {few_shot_split}) == 1:
        split = next(iter(files.keys() - {few_shot_split}))
    if split is None:
        raise DataError(f"{directory}: file of the split {' or '.join(splits) or 'of this task'} not found.")
    rows = read_rows(files[split])
    check_columns(rows, entry["columns"], str(files[split]))
    few_shot_rows = read_rows(files[few_shot_split]) if few_shot_split else []
    return rows, few_shot_rows, provenance | {"split": split, "few_shot": few_shot_split}


def _digest(rows: list[dict], few_shot_rows: list[dict]) -> str:
    """Return the SHA-256 (hex) of the raw rows in order, evaluated split first."""
    digest = hashlib.sha256()
    for row in rows + few_shot_rows:
        digest.update(f"{json.dumps(row, sort_keys=True, default=str)}\n".encode("ascii"))
    return digest.hexdigest()


def _reasons(counts: dict) -> str:
    first = next(iter(counts["first_dropped"].values()), None)
    reasons = ", ".join(f"{reason} ({n})" for reason, n in counts["dropped"].items()) or "the dataset has no rows"
    return reasons + (f". The first: {first}" if first else "")


def _warnings(name: str, counts: dict, example_counts: dict, expected: int | None, provenance: dict) -> list[str]:
    warnings = []
    if expected is not None and counts["read"] != expected:
        mismatch = f"expected {format_count(expected, 'row')} as in the task file, got {counts['read']}"
        warnings.append(f"{name}: {mismatch}; the dataset has changed upstream.")
    for noun, dropped_counts in (("row", counts), ("few-shot example", example_counts)):
        for reason, n in dropped_counts["dropped"].items():
            first = dropped_counts["first_dropped"].get(reason)
            suffix = f" The first: {first}." if first else ""
            warnings.append(f"{name}: {format_count(n, noun)} dropped ({reason}).{suffix}")
    if provenance.get("pinned") is False:
        warnings.append(f"{name}: not pinned; to pin it, add sha256: {provenance['file_sha256']} to the task file.")
    return warnings


def make_items(rows: list[dict], item_type: str, columns: dict, *, few_shot: bool = False) -> tuple[list[dict], dict]:
    """Return (rows per ITEMS, counts of rows and reasons); IDs of few-shot examples begin with `shot/`.

    The prefix is needed because datasets number each split from 1.
    """
    dropped, repaired = Counter(), Counter()
    first_dropped: dict[str, str] = {}
    alphabet = answer_alphabet([row for row in rows if is_selected(row, columns)], columns)
    items = []
    for row_index, row in enumerate(rows):
        content = replace_surrogates(row)
        if not is_selected(content, columns):
            dropped["not selected by where"] += 1
            continue
        is_typed = getattr(row, "is_typed", False)
        cells = Cells({**content, "_row": row_index}, columns, alphabet, is_typed=is_typed)
        if content != row:
            cells.repaired.add("lone surrogates replaced by U+FFFD")
        try:
            if "_joined" in row and row["_joined"] is None:
                raise RowRejected("no row with its ID in the language that it is joined with")
            content = CONVERTERS[item_type](cells)
            if not few_shot and item_type == "multi_answer" and len(content["gold"]) == len(content["choices"]):
                raise RowRejected("no incorrect answer", *content["choices"])
            category = cells.text("category") or None
            cluster_id = _cluster_id(cells, content)
        except RowRejected as reason:
            dropped[str(reason)] += 1
            first_dropped.setdefault(str(reason), f"{location_of(row, row_index)}: {reason.detail}")
            continue
        repaired.update(cells.repaired)
        extra = {name: as_text(find(cells.row, column)) for name, column in columns.get("extra", {}).items()}
        content["extra"] = {name: text for name, text in (extra | content["extra"]).items() if text}
        digest = fingerprint([content, category])[:16]
        items.append(
            {
                "item_id": _upstream_id(cells.row, columns) or digest,
                "few_shot": few_shot,
                **content,
                "cluster_id": cluster_id,
                "category": category,
                "source_row": row_index,
                "_digest": digest,
            }
        )
    duplicates = _make_unique(items, "shot/" if few_shot else "")
    counts = {
        "read": len(rows),
        "kept": len(items),
        "dropped": dict(dropped),
        "first_dropped": first_dropped,
        "repaired": dict(repaired),
        "duplicates": duplicates,
    }
    return items, counts


def mark_repeats(items: list[dict]) -> None:
    """Set `repeats` of items that look the same as an evaluated one to its smallest ID.

    Answer, case and punctuation may differ. An example with the same question is a leak even if one answer is an error.
    """
    groups: dict[str, list[dict]] = {}
    for item in items:
        key = fingerprint([folded(item["context"]), folded(item["question"]), *sorted(map(folded, item["choices"]))])
        groups.setdefault(key, []).append(item)
    for group in groups.values():
        evaluated = min((item["item_id"] for item in group if not item["few_shot"]), default=None)
        for item in group:
            item["repeats"] = evaluated if len(group) > 1 else None


def sample(items: list[dict], limit: int | None, seed: int) -> list[dict]:
    """Return at most `limit` of `items`, in complete clusters, sampled by hash and thus independently of row order.

    A cluster that would exceed the limit is skipped, except for the first. Few-shot examples are retained.
    """
    evaluated_items = [item for item in items if not item["few_shot"]]
    if limit is None or len(evaluated_items) <= limit:
        return items
    clusters: dict[str, list[dict]] = {}
    for item in evaluated_items:
        clusters.setdefault(draw_key(item["item_id"], item["cluster_id"], seed), []).append(item)
    selected_ids: set[str] = set()
    for cluster in sorted(clusters):
        if not selected_ids or len(selected_ids) + len(clusters[cluster]) <= limit:
            selected_ids |= {item["item_id"] for item in clusters[cluster]}
        if len(selected_ids) >= limit:
            break
    return [item for item in items if item["few_shot"] or item["item_id"] in selected_ids]


def draw_key(item_id: str, cluster_id: str | None, seed: int = 0) -> str:
    """Return the key by which clusters of items are drawn, for a limit and for labels: a hash of seed and cluster."""
    return fingerprint([seed, cluster_id or f"item {item_id}"])


def _upstream_id(row: dict, columns: dict) -> str:
    parts = [as_text(find(row, column)) for column in as_list(columns.get("id", []))]
    return "#".join(filter(None, parts))


def _cluster_id(cells: Cells, content: dict) -> str | None:
    cluster_id = cells.text("cluster")
    if cluster_id:
        return cluster_id
    # questions on one passage are not independent observations, even if the dataset has no passage IDs
    return fingerprint(content["context"])[:16] if content["context"] and content["question"] else None


def _make_unique(items: list[dict], prefix: str) -> int:
    """Make item IDs unique in place by hashes of contents, repeats by numbers; return the number of exact repeats."""
    contents: dict[str, set[str]] = {}
    for item in items:
        contents.setdefault(item["item_id"], set()).add(item["_digest"])
    upstream_ids, seen = set(contents), Counter()
    for item in items:
        digest = item.pop("_digest")
        item_id = item["item_id"]
        if len(contents[item_id]) > 1:
            item_id = _avoid_collision(f"{item_id}-{digest[:8]}", upstream_ids)
        seen[item_id] += 1
        n = seen[item_id]
        item["item_id"] = prefix + (item_id if n == 1 else _avoid_collision(f"{item_id}~{n}", upstream_ids))
    return sum(n - 1 for n in seen.values())


def _avoid_collision(item_id: str, upstream_ids: set[str]) -> str:
    """Append ~ to `item_id` until it differs from all IDs of the dataset."""
    while item_id in upstream_ids:
        item_id += "~"
    return item_id
