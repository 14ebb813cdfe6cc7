"""Conversion of rows to items with lm-eval's prompt text: every evaluated row, and every candidate few-shot example.

The field `extra` of an item is read only by protocols/verbatim/requests.py:
  before        the description, before the few-shot examples
  continuation  the text after every option, if the options are contexts (lm-eval's "multiple inputs")
  prefix        the text between such an option and the continuation
  delimiter     the text between query and option
  targets       JSON list: the texts that a generated output may equal
  row           hash of the row, to exclude a row from its own few-shot examples
  ask           JSON: further settings of the task's file for its requests
A few-shot example has its complete text in `context`, and in `extra` its `row`, and `cannot` if it cannot be used (the
reason). `source_row` is the index in the split after `process_docs`, which determines the examples that lm-eval draws.
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

_AT_ONCE = 100  # rows per limit: setting a limit takes as long as rendering a row
FUNCTIONS = ("process_docs", "doc_to_text", "doc_to_target", "doc_to_choice")  # keys whose value may be a function


def lay_out(
    rows: list[dict], shots: list[dict], settings: dict, folder: Path, provenance: dict
) -> tuple[list[dict], dict, list[dict], dict]:
    """Return (items, counts of rows, few-shot examples, counts of their rows), as two calls of `make_items` do.

    `shots` are the rows of the few-shot split.

    Raises:
        DataError: `process_docs` fails or leaves no row, the first row does not fit the file, or time runs out.
    """
    if settings["few"]["samples"] and settings["few_split"] is None:
        shots = settings["few"]["samples"]
    elif not shots and settings["few_split"] == settings["split"]:
        shots = rows
    tabular = _tabular(provenance)
    processed = _processed(rows, settings["process_docs"], folder, tabular)
    if not processed:
        raise DataError(f"{settings['file']}: process_docs returns no rows.")
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
        raise DataError(f"{settings['file']}: the first row cannot be rendered ({reason}).") from None
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
            repaired["answer not among the options: treated as unknown"] += 1
        extra = {"before": worded.before, "delimiter": settings["target_delimiter"], "row": _hash(row), "ask": ask}
        if worded.continuation is not None:
            extra |= {"continuation": worded.continuation, "prefix": worded.prefix}
        extra |= {"targets": json.dumps(worded.targets, ensure_ascii=False)} if worded.targets else {}
        content = {"context": worded.query, "question": "", "choices": worded.choices, "gold": worded.gold}
        items.append(_item(number, content | {"target": worded.target}, extra, few_shot=False))
    items, counts = _unique(items, dropped, repaired)
    return items, counts | {"first_dropped": first_dropped}


def _examples(rows: list[dict], how: wording.Wording) -> tuple[list[dict], dict]:
    """Return all rows as few-shot examples, even unusable ones: their number determines which are drawn."""
    repaired, items = Counter(), []
    for number, (row, text) in enumerate(_each(wording.shown, rows, how)):
        extra = {"row": _hash(row)}
        if isinstance(text, CannotLayOut):
            extra["cannot"], text = str(text), ""
            repaired[f"few-shot example cannot be rendered: {extra['cannot']}"] += 1
        content = {"context": text, "question": "", "choices": [], "gold": [], "target": None}
        items.append(_item(number, content, extra, few_shot=True))
    return _unique(items, Counter(), repaired)


def _each(word: Callable, rows: list[dict], how: wording.Wording) -> Iterator[tuple[dict, object]]:
    """Yield (row, result of `word` for it, or the CannotLayOut that it raises)."""
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
    """Return a context that limits time and memory of templates; without limits if the task has trusted functions."""
    fields = [settings[key] for key in FUNCTIONS] + [settings["few"][key] for key in FUNCTIONS]
    if any(functions.is_function(field) for field in (*fields, settings["process_results"])):
        return contextlib.nullcontext()
    return templates.limits()


def _item(number: int, content: dict, extra: dict, *, few_shot: bool) -> dict:
    content = sound(content)
    extra = {name: text for name, text in sound(extra).items() if text}
    return {
        "item_id": f"{'shot/' if few_shot else ''}{extra['row'][:12]}{_hash([content, extra])[:4]}",
        "few_shot": few_shot,
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
    """Return `rows` with the same columns, typed as in `datasets` if `tabular`, after `process_docs` if it is given."""
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
    """Return whether the rows are from text files without types (CSV, TSV)."""
    names = provenance.get("files") or [provenance.get("file") or provenance.get("url") or ""]
    return any(form_of(name) in ("csv", "tsv") for name in names)


def _typed(rows: list[dict]) -> list[dict]:
    """Convert columns of a CSV file to numbers, booleans or None, as `datasets` does with pandas."""
    if not rows:
        return rows
    import pandas as pd  # here, because checking a config does not need it

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    text.seek(0)
    return pa.Table.from_pandas(pd.read_csv(text), preserve_index=False).to_pylist()


def _hash(value) -> str:
    """Return the SHA-256 (hex) of a row with values of any type (dates, bytes)."""
    text = json.dumps(sound(value), ensure_ascii=False, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
