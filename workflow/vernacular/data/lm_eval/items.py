"""Rows become items that carry lm-eval's own wording: every evaluated row, and every row it may show as an example.

An item's `extra`, read by protocols/verbatim/requests.py alone:
  before        the description, in front of the solved examples
  continuation  what follows every option, where the options are contexts (their "multiple inputs")
  prefix        what stands between such an option and the continuation
  delimiter     what stands between query and option
  targets       JSON list: the texts a generated answer may equal
  row           hash of the row, for "never show a row to itself"
  ask           JSON: what else the task's file says of the asking
A solved example has its whole wording in `context`, and in `extra` its `row`, or `cannot` (why it cannot be shown).
`source_row` is the place in the split after `process_docs`, which decides what lm-eval draws.
"""

import contextlib
import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from vernacular.core.errors import DataError
from vernacular.core.processes import TimeLimitExceeded
from vernacular.data.columns import sound
from vernacular.data.lm_eval import functions, templates, wording
from vernacular.data.lm_eval.templates import ODD_ROW, CannotLayOut
from vernacular.data.readers import form_of

_AT_ONCE = 100  # rows under one limit: to set one takes as long as to word a row
FUNCTIONS = ("process_docs", "doc_to_text", "doc_to_target", "doc_to_choice")  # what may be one


def lay_out(
    rows: list[dict], shots: list[dict], settings: dict, folder: Path, provenance: dict
) -> tuple[list[dict], dict, list[dict], dict]:
    """(items, what became of the rows, solved examples, what became of those), as two calls of `make_items` give them.

    `shots` are the rows of the few-shot split. Raises DataError where a trusted function fails on the split as a whole.
    """
    if settings["few"]["samples"] and settings["few_split"] is None:
        shots = settings["few"]["samples"]
    elif not shots and settings["few_split"] == settings["split"]:
        shots = rows
    tabular = _tabular(provenance)
    processed = _processed(rows, settings["process_docs"], folder, tabular)
    if not processed:
        raise DataError(f"{settings['file']}: process_docs leaves no row.")
    few_docs = settings["few"]["process_docs"]
    if settings["few_split"] is None:
        pool = shots
    elif shots is rows and few_docs == settings["process_docs"]:
        pool = processed
    else:
        pool = _processed(shots, few_docs, folder, tabular)
    try:
        with _limits(settings):
            how = wording.wording(settings, folder, processed)
        items, counts = _items(processed, how)
        examples, example_counts = _examples(pool, how)
    except CannotLayOut as reason:
        raise DataError(f"{settings['file']}: its first row cannot be laid out ({reason}).") from None
    except TimeLimitExceeded:
        raise DataError(
            f"{settings['file']}: its templates take more than {templates.SECONDS} seconds for {_AT_ONCE} rows."
        ) from None
    return items, counts | {"read": len(rows)}, examples, example_counts | {"read": len(shots)}


def _items(rows: list[dict], how: wording.Wording) -> tuple[list[dict], dict]:
    settings = how.settings
    ask = {key: settings[key] for key in ("exclude", "pmi", "until", "max_gen_toks", "exact", "filters", "num_fewshot")
           if key in settings} | {"sampler": settings["few"]["sampler"]}  # fmt: skip
    ask = json.dumps(ask, ensure_ascii=False, sort_keys=True)
    dropped, repaired, items = Counter(), Counter(), []
    first_dropped: dict[str, int] = {}
    for number, (row, worded) in enumerate(_each(wording.evaluated, rows, how)):
        if isinstance(worded, CannotLayOut):
            dropped[str(worded)] += 1
            first_dropped.setdefault(str(worded), number)
            continue
        if not (worded.gold or worded.targets or worded.target is not None):
            repaired["answer not among the options: not known"] += 1
        extra = {"before": worded.before, "delimiter": settings["target_delimiter"], "row": _hash(row), "ask": ask}
        if worded.continuation is not None:
            extra |= {"continuation": worded.continuation, "prefix": worded.prefix}
        extra |= {"targets": json.dumps(worded.targets, ensure_ascii=False)} if worded.targets else {}
        content = {"context": worded.query, "question": "", "choices": worded.choices, "gold": worded.gold}
        items.append(_item(number, content | {"target": worded.target}, extra, demonstration=False))
    items, counts = _unique(items, dropped, repaired)
    return items, counts | {"first_dropped": first_dropped}


def _examples(rows: list[dict], how: wording.Wording) -> tuple[list[dict], dict]:
    """Every row stands here, shown or not: how many there are decides which are drawn."""
    repaired, items = Counter(), []
    for number, (row, text) in enumerate(_each(wording.shown, rows, how)):
        extra = {"row": _hash(row)}
        if isinstance(text, CannotLayOut):
            extra["cannot"], text = str(text), ""
            repaired[f"cannot be shown: {extra['cannot']}"] += 1
        content = {"context": text, "question": "", "choices": [], "gold": [], "target": None}
        items.append(_item(number, content, extra, demonstration=True))
    return _unique(items, Counter(), repaired)


def _each(word: Callable, rows: list[dict], how: wording.Wording) -> Iterator[tuple[dict, object]]:
    """Each row, and what `word` makes of it, or the CannotLayOut why it makes nothing."""
    for start in range(0, len(rows), _AT_ONCE):
        batch, found = rows[start : start + _AT_ONCE], []
        with _limits(how.settings):
            for row in batch:
                try:
                    found.append(word(how, row))
                except CannotLayOut as reason:
                    found.append(reason)
        yield from zip(batch, found, strict=True)


def _limits(settings: dict):
    """What the templates may take for some rows; an author whose Python is trusted is not limited."""
    fields = [settings[key] for key in FUNCTIONS] + [settings["few"][key] for key in FUNCTIONS]
    if any(functions.is_function(field) for field in (*fields, settings["process_results"])):
        return contextlib.nullcontext()
    return templates.limits()


def _item(number: int, content: dict, extra: dict, *, demonstration: bool) -> dict:
    content = sound(content)
    extra = {name: text for name, text in sound(extra).items() if text}
    return {
        "item_id": f"{'shot/' if demonstration else ''}{extra['row'][:12]}{_hash([content, extra])[:4]}",
        "demonstration": demonstration,
        **content,
        "cluster_id": None,
        "category": None,
        "source_row": number,
        "extra": extra,
    }


def _unique(items: list[dict], dropped: Counter, repaired: Counter) -> tuple[list[dict], dict]:
    seen = Counter()
    for item in items:
        seen[item["item_id"]] += 1
        if (count := seen[item["item_id"]]) > 1:
            item["item_id"] += f"~{count}"
    duplicates = sum(n - 1 for n in seen.values())
    counts = {"kept": len(items), "dropped": dict(dropped), "repaired": dict(repaired), "duplicates": duplicates}
    return items, counts


def _processed(rows: list[dict], mark: dict | None, folder: Path, tabular: bool) -> list[dict]:
    """`rows` with one set of columns, typed as `datasets` types them, through `process_docs` where there is one."""
    rows = [{key: value for key, value in row.items() if key != "_config"} for row in rows]
    rows = _typed(rows) if tabular else rows
    columns = dict.fromkeys(key for row in rows for key in row)
    rows = [{key: row.get(key) for key in columns} for row in rows]
    if mark is None:
        return rows
    import datasets  # takes a second

    datasets.disable_progress_bars()
    function = functions.load(mark, folder)
    try:
        found = function(datasets.Dataset.from_list(rows))
        return [dict(row) for row in found]
    except (*ODD_ROW, pa.ArrowException) as error:
        raise DataError(f"process_docs ({mark['function']}) fails: {type(error).__name__}: {error}") from None


def _tabular(provenance: dict) -> bool:
    """Are the rows from text files without types?"""
    names = provenance.get("files") or [provenance.get("file") or provenance.get("url") or ""]
    return any(form_of(name) in ("csv", "tsv") for name in names)


def _typed(rows: list[dict]) -> list[dict]:
    """Columns of a CSV file as numbers, truth values or nothing, as `datasets` has them from pandas."""
    if not rows:
        return rows
    import pandas as pd  # here, because checking a config should not wait for it

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    text.seek(0)
    return pa.Table.from_pandas(pd.read_csv(text), preserve_index=False).to_pylist()


def _hash(value) -> str:
    """sha256 (hex) of a row, whatever its columns hold (dates, bytes)."""
    text = json.dumps(sound(value), ensure_ascii=False, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
