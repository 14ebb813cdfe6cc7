"""Conversion of rows to items with lm-eval's prompt text: every evaluated row, and every candidate few-shot example.

The field `extra` of an item is read only by protocols/verbatim/requests.py:
  description   the text before the few-shot examples
  continuation  the text after every option, if the options are contexts (lm-eval's "multiple inputs")
  prefix        the text between such an option and the continuation
  delimiter     the text between query and option
  targets       JSON list: the texts that a generated output may equal
  row           hash of the row, to exclude a row from its own few-shot examples
  settings      JSON: further settings of the task's file for its requests
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
from vernacular.data.columns import replace_surrogates
from vernacular.data.lm_eval import functions, prompt_template, templates
from vernacular.data.lm_eval.prompt_template import PromptTemplate
from vernacular.data.lm_eval.templates import ROW_ERRORS, RenderError
from vernacular.data.readers import detect_format

_BATCH_SIZE = 100  # rows per limit: setting a limit takes as long as rendering a row
FUNCTIONS = ("process_docs", "doc_to_text", "doc_to_target", "doc_to_choice")  # keys whose value may be a function


def build_items(
    rows: list[dict], few_shot_rows: list[dict], settings: dict, directory: Path, provenance: dict
) -> tuple[list[dict], dict, list[dict], dict]:
    """Return (items, counts of rows, few-shot examples, counts of their rows), as two calls of `make_items` do.

    `few_shot_rows` are the rows of the few-shot split.

    Raises:
        DataError: `process_docs` fails or leaves no row, the first row does not fit the file, or time runs out.
    """
    if settings["fewshot_config"]["samples"] and settings["few_split"] is None:
        few_shot_rows = settings["fewshot_config"]["samples"]
    elif not few_shot_rows and settings["few_split"] == settings["split"]:
        few_shot_rows = rows
    tabular = _tabular(provenance)
    evaluated_rows = _process_docs(rows, settings["process_docs"], settings["file"], directory, tabular)
    if not evaluated_rows:
        raise DataError(f"{settings['file']}: process_docs returns no rows.")
    few_shot_process_docs = settings["fewshot_config"]["process_docs"]
    if settings["few_split"] is None:
        example_rows = few_shot_rows
    elif few_shot_rows is rows and few_shot_process_docs == settings["process_docs"]:
        example_rows = evaluated_rows
    else:
        example_rows = _process_docs(few_shot_rows, few_shot_process_docs, settings["file"], directory, tabular)
    try:
        with _render_limits(settings):
            template = prompt_template.build_template(settings, directory, evaluated_rows)
        items, counts = _evaluated_items(evaluated_rows, template)
        examples, example_counts = _few_shot_items(example_rows, template)
    except RenderError as reason:
        raise DataError(f"{settings['file']}: the first row cannot be rendered ({reason}).") from None
    except TimeLimitExceeded:
        raise DataError(
            f"{settings['file']}: its templates take more than {templates.MAX_SECONDS} seconds for {_BATCH_SIZE} rows."
        ) from None
    return items, counts | {"read": len(rows)}, examples, example_counts | {"read": len(few_shot_rows)}


def _evaluated_items(rows: list[dict], template: PromptTemplate) -> tuple[list[dict], dict]:
    settings = template.settings
    keys = ("exclude", "pmi", "until", "max_gen_toks", "exact", "filters", "num_fewshot")
    request_settings = {key: settings[key] for key in keys if key in settings}
    request_settings |= {"sampler": settings["fewshot_config"]["sampler"]}
    request_settings = json.dumps(request_settings, ensure_ascii=False, sort_keys=True)
    dropped, repaired, items = Counter(), Counter(), []
    first_dropped: dict[str, int] = {}
    for row_index, (row, rendered) in enumerate(_render_rows(prompt_template.render_item, rows, template)):
        if isinstance(rendered, RenderError):
            dropped[str(rendered)] += 1
            first_dropped.setdefault(str(rendered), row_index)
            continue
        if not (rendered.gold or rendered.targets or rendered.target is not None):
            repaired["answer not among the options: treated as unknown"] += 1
        extra = {
            "description": rendered.description,
            "delimiter": settings["target_delimiter"],
            "row": _hash(row),
            "settings": request_settings,
        }
        if rendered.continuation is not None:
            extra |= {"continuation": rendered.continuation, "prefix": rendered.prefix}
        extra |= {"targets": json.dumps(rendered.targets, ensure_ascii=False)} if rendered.targets else {}
        content = {"context": rendered.query, "question": "", "choices": rendered.choices, "gold": rendered.gold}
        items.append(_item(row_index, content | {"target": rendered.target}, extra, few_shot=False))
    items, counts = _unique(items, dropped, repaired)
    return items, counts | {"first_dropped": first_dropped}


def _few_shot_items(rows: list[dict], template: PromptTemplate) -> tuple[list[dict], dict]:
    """Return all rows as few-shot examples, even unusable ones: their number determines which are drawn."""
    repaired, items = Counter(), []
    for row_index, (row, text) in enumerate(_render_rows(prompt_template.render_few_shot_example, rows, template)):
        extra = {"row": _hash(row)}
        if isinstance(text, RenderError):
            extra["cannot"], text = str(text), ""
            repaired[f"few-shot example cannot be rendered: {extra['cannot']}"] += 1
        content = {"context": text, "question": "", "choices": [], "gold": [], "target": None}
        items.append(_item(row_index, content, extra, few_shot=True))
    return _unique(items, Counter(), repaired)


def _render_rows(render: Callable, rows: list[dict], template: PromptTemplate) -> Iterator[tuple[dict, object]]:
    """Yield (row, result of `render` for it, or the RenderError that it raises)."""
    for start in range(0, len(rows), _BATCH_SIZE):
        batch, results = rows[start : start + _BATCH_SIZE], []
        with _render_limits(template.settings):
            for row in batch:
                try:
                    results.append(render(template, row))
                except RenderError as reason:
                    results.append(reason)
        yield from zip(batch, results, strict=True)


def _render_limits(settings: dict):
    """Return a context that limits time and memory of templates; without limits if the task has trusted functions."""
    fields = [settings[key] for key in FUNCTIONS] + [settings["fewshot_config"][key] for key in FUNCTIONS]
    if any(functions.is_function(field) for field in (*fields, settings["process_results"])):
        return contextlib.nullcontext()
    return templates.sandbox_limits()


def _item(row_index: int, content: dict, extra: dict, *, few_shot: bool) -> dict:
    content = replace_surrogates(content)
    extra = {name: text for name, text in replace_surrogates(extra).items() if text}
    return {
        "item_id": f"{'shot/' if few_shot else ''}{extra['row'][:12]}{_hash([content, extra])[:4]}",
        "few_shot": few_shot,
        **content,
        "cluster_id": None,
        "category": None,
        "source_row": row_index,
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


def _process_docs(
    rows: list[dict], function_spec: dict | None, file: str, directory: Path, tabular: bool
) -> list[dict]:
    """Return `rows` with the same columns, typed as in `datasets` if `tabular`, after `process_docs` if it is given."""
    rows = [{key: value for key, value in row.items() if key != "_config"} for row in rows]
    rows = _infer_types(rows) if tabular else rows
    columns = dict.fromkeys(key for row in rows for key in row)
    rows = [{key: row.get(key) for key in columns} for row in rows]
    if function_spec is None:
        return rows
    import datasets  # takes a second

    datasets.disable_progress_bars()
    function = functions.load(function_spec, directory)
    try:
        processed_rows = function(datasets.Dataset.from_list(rows))
        return [dict(row) for row in processed_rows]
    except (*ROW_ERRORS, pa.ArrowException) as error:
        raise DataError(
            f"{file}: process_docs ({function_spec['function']}) fails: {type(error).__name__}: {error}"
        ) from None


def _tabular(provenance: dict) -> bool:
    """Return whether the rows are from text files without types (CSV, TSV)."""
    names = provenance.get("files") or [provenance.get("file") or provenance.get("url") or ""]
    return any(detect_format(name) in ("csv", "tsv") for name in names)


def _infer_types(rows: list[dict]) -> list[dict]:
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
    text = json.dumps(replace_surrogates(value), ensure_ascii=False, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
