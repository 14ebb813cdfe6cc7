"""Data file `prompts`: means over the prompts of a group, values and ranks by prompt, shares of variance, wordings.

A group is one entry of the leaderboard, in place of its single prompts; these have their task and item views.
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from vernacular.core import artifacts
from vernacular.core.tables import rows_of
from vernacular.protocols.schema import REQUESTS
from vernacular.report import leaderboard
from vernacular.report.data_files import FIELDS, record, round_all, round_significant, rounded, write_data_file
from vernacular.report.leaderboard import ReportIndex
from vernacular.types import skipped_reason

_OWN_FIELDS = ("metric", "model", "baseline", "values", "shares")
_MEAN_FIELDS = [name for name in FIELDS["records"]["PromptMean"] if name not in _OWN_FIELDS]
_SHARES = {
    "items": "share_items",
    "prompts": "share_prompts",
    "seeds": "share_seeds",
    "items × prompts": "share_items_prompts",
    "other": "share_rest",
}


def write_prompts(
    out: Path, prompt_rows: list[dict], results: Path, index: ReportIndex, descriptions: dict[str, dict]
) -> None:
    """Write the data file. `prompt_rows`: rows per PROMPTS; `descriptions`: of variants, by evaluation."""
    by_group: dict[str, list[dict]] = {}
    for row in prompt_rows:
        by_group.setdefault(row["evaluation"], []).append(row)
    groups = [
        _group(name, [row for row in rows if row["headline"]] or rows, results, index, descriptions)
        for name, rows in by_group.items()
    ]
    write_data_file(out, "prompts", record("Prompts", {"groups": groups}))


def _group(name: str, rows: list[dict], results: Path, index: ReportIndex, descriptions: dict[str, dict]) -> dict:
    first = rows[0]
    per_prompt = len(first["evaluations"]) // first["n_prompts"]
    runs = first["evaluations"][::per_prompt]
    texts = _texts(results, runs)
    prompts = [
        {"name": prompt, "evaluation": index.evaluations.number(run), "text": text, **descriptions.get(run, {})}
        for prompt, run, text in zip(first["prompts"], runs, texts, strict=True)
    ]
    group = {
        "evaluation": index.evaluations.number(name),
        "seeds": first["n_seeds"],
        "prompts": [record("Prompt", prompt) for prompt in prompts],
        "rows": [_row(row, index) for row in rows],
    }
    return record("PromptGroup", group)


def _row(row: dict, index: ReportIndex) -> dict:
    mean = {
        "metric": index.metric(row),
        "model": index.models.number(row["model"]),
        "baseline": None if row["baseline"] is None else index.models.number(row["baseline"]),
        "values": round_all(row["prompt_values"]),
        "shares": rounded(row, _SHARES),
        **{name: round_significant(row[name]) for name in _MEAN_FIELDS},
    }
    return record("PromptMean", mean)


def _texts(results: Path, runs: list[str]) -> list[str | None]:
    """Return the text of one item under each prompt, without few-shot examples; null without an item in common."""
    by_run = []
    for run in runs:
        columns = ["item_id", "role", "prefix", "text", "span_start"]
        rows = artifacts.read(results / "requests" / f"{run}.parquet", REQUESTS).select(columns).to_pylist()
        texts: dict[str, str] = {}
        for row in rows:
            if skipped_reason(row["role"]) is None and not row["role"].startswith("uncond"):
                end = None if row["span_start"] is None else row["span_start"] - len(row["prefix"])
                texts.setdefault(row["item_id"], row["text"][:end])
        by_run.append(texts)
    shared = sorted(set.intersection(*(set(texts) for texts in by_run)))
    return [texts[shared[0]] if shared else None for texts in by_run]


def put_means(index: dict, tables: Mapping[str, pa.Table], prompt_rows: list[dict], report_index: ReportIndex) -> None:
    """Put the means in the index of the leaderboard, in place of the values of the single prompts.

    A group is one evaluation with `runs`, the numbers of its evaluations with one prompt, each of which has the number
    of its group as `group`. To be called before names of other evaluations are numbered: a group's number is its
    position in the list.
    """
    replaced: set[tuple[int, int]] = set()
    for name in dict.fromkeys(row["evaluation"] for row in prompt_rows):
        if name not in tables:
            continue
        rows = rows_of(tables[name])
        number = report_index.evaluations.number(name)
        cells = leaderboard.cells(rows, report_index)
        names = dict.fromkeys(run for row in prompt_rows if row["evaluation"] == name for run in row["evaluations"])
        runs = [report_index.evaluations.number(run) for run in names]
        replaced |= {(run, cell.model) for run in runs for cell in cells}
        for run in runs:
            index["evaluations"][run]["group"] = number
        entry = {
            "id": name,
            "items": max(row["n"] for row in rows),
            "representative": leaderboard.representative_metric(cells, report_index.metric_info),
            "runs": runs,
            **leaderboard.setting(rows[0]),
            **({"samples": True} if "samples" in index["evaluations"][runs[0]] else {}),
        }
        index["evaluations"].append(record("Evaluation", entry))
        index["cells"] += leaderboard.index_cells(number, cells, report_index)
    index["cells"] = [cell for cell in index["cells"] if (cell.evaluation, cell.model) not in replaced]
