"""HTML report: a directory with `index.html` that opens from disk, without a network or a server.

`index.html` is a shell; scripts, styles and libraries are copied from `workflow/report/`, and the data are in data
files (see `data_files`).
"""

import contextlib
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from vernacular import __version__
from vernacular.comparison.curves.schema import DECIDING_METRICS
from vernacular.comparison.schema import (
    AUDIT_LIST,
    BETWEEN_LANGUAGES,
    COMPARISONS,
    ESTIMATES,
    LANGUAGE_ITEMS,
    OVERALL,
    PROMPTS,
    RANKINGS,
)
from vernacular.core import artifacts
from vernacular.core.errors import format_count, writing
from vernacular.core.languages import base_language, english_names
from vernacular.core.logs import Progress
from vernacular.core.model_record import ModelRecord
from vernacular.core.paths import publishable
from vernacular.core.processes import pool
from vernacular.core.tables import rows_of
from vernacular.core.written import rewriting
from vernacular.exchange.unpaired import UNPAIRED
from vernacular.metrics.metric import display_name
from vernacular.metrics.schema import RESULTS, TOKENIZERS
from vernacular.protocols.registry import PROTOCOLS
from vernacular.protocols.schema import REQUESTS
from vernacular.report import leaderboard, provenance
from vernacular.report.comparisons import put_means, write_pairs, write_prompts
from vernacular.report.curves import write_curves
from vernacular.report.data_files import (
    ASSETS,
    FIELDS,
    INTERVAL,
    Row,
    record,
    round_significant,
    rounded,
    write_data_file,
)
from vernacular.report.evaluation import write_evaluation
from vernacular.report.leaderboard import Index, ReportIndex
from vernacular.summary.grid import distinct_titles
from vernacular.summary.notes import group_notes
from vernacular.types import SETTING

FILES_PER_POOL = 200  # task files; the imports of another process take as long as writing a hundred
_RESULT_COLUMNS = ["model", "evaluation", *SETTING, "category", "metric", "value", "ci_low", "ci_high", "n",
         "n_flagged", "n_ties", "chance_level", "majority_baseline", "unit", "headline", "higher_is_better",
         "signature"]  # fmt: skip


def build(
    results: Path,
    out: Path,
    *,
    models: list[str],
    evaluations: list[str],
    records: list[ModelRecord],
    changes: dict[tuple[str, str], Path],
    benchmarks: Path | None = None,
    tasks: dict[str, dict] | None = None,
    title: str = "Vernacular",
    prompts: dict[str, dict] | None = None,
    processes: int = 1,
    checkpoints: dict[str, dict] | None = None,
    audit: bool = False,
    estimates: bool = False,
    languages: bool = False,
    external: bool = False,
) -> str:
    """Write the report of `models` × `evaluations` to the directory `out`, complete or not at all; return a summary.

    Args:
        results: directory with `summary/`, `requests/` and a directory per model; comparisons, rankings and overall
            may be missing in `summary/`.
        records: the models' records.
        changes: (baseline, candidate) -> its CHANGES file.
        benchmarks: directory of Snakemake's benchmark files, if there are any.
        tasks: task -> its `title`, `short_title` and `note` for readers, as far as it has them.
        prompts: descriptions of the prompt variants, by evaluation; None if no evaluation has several prompts.
        processes: evaluations that are written in parallel; each holds one model's rows of one evaluation.
        checkpoints: model -> its position in training, for the checkpoints of series.
        audit: whether the run has lists of items to read.
        estimates: whether it has values by labels of speakers, or borrowed ones.
        languages: whether it compares parallel tasks between languages.
        external: whether it has external results.

    Raises:
        ArtifactError: a file is missing or damaged.
        UserError: a file in `out` that is not of an earlier report has the name of one of this report.
        WriteError: a file cannot be written.
    """
    directory = out
    with rewriting(directory, "report") as out:
        _write_assets(out)
        summary = results / "summary" / "results.parquet"
        long = _by_evaluation(artifacts.read(summary, RESULTS).select(_RESULT_COLUMNS))
        notes = artifacts.metadata(summary)["notes"]
        report_index = ReportIndex(Index(models), Index(evaluations), Index())
        index = {"title": title, "version": __version__, "evaluations": [], "cells": [], "symptoms": [], "spoken": []}
        index["noise"] = []
        by_labels = _estimates(results / "summary" / "labels.parquet") if estimates else {}
        runs, datasets, positions = [], {}, {}
        content_by_evaluation = _write_evaluations(out, evaluations, dict(enumerate(models)), results, processes)
        for name, (task, positions[name], run_metadata) in zip(evaluations, content_by_evaluation, strict=True):
            number, rows = report_index.evaluations.number(name), rows_of(long[name]) if name in long else []
            task |= leaderboard.task_values(rows, report_index)
            task["dataset"] = provenance.dataset_info(task["dataset"])
            task |= {"estimates": by_labels[name]} if name in by_labels else {}
            write_data_file(out, f"e{number}/task", record("Task", task))
            if task["dataset"]:
                key = tuple(task["dataset"][name] for name in ("task", "language", "limit"))
                datasets[key] = task["dataset"]
            runs += [provenance.run_info(model, number, metadata) for model, metadata in run_metadata.items()]
            requests = results / "requests" / f"{name}.parquet"  # of an evaluation without any value
            setting = leaderboard.setting(rows[0] if rows else vars(artifacts.metadata(requests, REQUESTS)))
            protocol = PROTOCOLS.get(setting["protocol"])  # None: of another version
            entry = {
                "id": name,
                "items": task["items"],
                "note": protocol.note or None if protocol else None,
                "representative": leaderboard.representative_metric(task["cells"], report_index.metric_info),
                **setting,
                **({"samples": True} if task["dataset"] and task["dataset"]["kind"] == "samples" else {}),
            }
            index["evaluations"].append(record("Evaluation", entry))
            index["cells"] += leaderboard.index_cells(number, task["cells"], report_index)
            index["symptoms"] += leaderboard.symptoms(number, run_metadata)
            index["spoken"] += leaderboard.spoken(number, run_metadata)
            noisy = {model: run.within_noise for model, run in run_metadata.items() if run.within_noise}
            index["noise"] += [Row.Noise(evaluation=number, model=model, n=n) for model, n in noisy.items()]
        prompt_rows = _read_optional(results, "prompts", PROMPTS).to_pylist()
        if prompt_rows:
            put_means(index, long, prompt_rows, report_index)
            write_prompts(out, prompt_rows, results, report_index, prompts or {})
            index["n_prompt_groups"] = len({row["evaluation"] for row in prompt_rows})
        short = distinct_titles(tasks or {})
        index["tasks"] = [
            Row.TaskTitle(name=name, title=task.get("title"), note=task.get("note"), short=short[name])
            for name, task in (tasks or {}).items()
        ]
        bases = sorted({base_language(entry["language"] or "") for entry in index["evaluations"]})
        index["languages"] = {base: name for base in bases if (name := english_names().get(base))}
        index["missing"] = leaderboard.missing(notes, report_index)
        index["rankings"] = leaderboard.ranking_marks(
            _read_optional(results, "rankings", RANKINGS), index["cells"], report_index
        )
        index["overall"] = leaderboard.overall(_read_optional(results, "overall", OVERALL), report_index)
        index["beside"] = _write_beside(out, results, report_index, bool(checkpoints), external)
        comparisons = _read_optional(results, "comparisons", COMPARISONS)
        index["pairs"] = write_pairs(out, comparisons, changes, positions, report_index, prompt_rows)
        index["curves"] = write_curves(out, results, checkpoints, report_index) if checkpoints else []
        # names: first those given as arguments, then those that only occur in a note or a comparison
        index |= {"models": report_index.models.names, "n_models": len(models), "names": report_index.evaluations.names}
        if audit:
            index["n_audit_lists"] = _write_audit_lists(out, results / "summary" / "audit.parquet")
        if languages:
            index["between_languages"] = _write_languages(out, results / "summary", report_index)
        provenance_piece = {
            "models": provenance.models(records),
            "datasets": list(datasets.values()),
            "runs": runs,
            "notes": [record("Note", row) for row in publishable(group_notes(notes))],
            "jobs": provenance.job_costs(benchmarks, {*models, *(r.base for r in records if r.base)}),
            "version": __version__,
        }
        write_data_file(out, "provenance", record("Provenance", provenance_piece))
        tokenizers = _read_optional(results, "tokenizers", TOKENIZERS).to_pylist()
        write_data_file(out, "tokenizers", [record("Tokenizer", row) for row in tokenizers])
        write_data_file(out, "index", record("Index", index | {"metrics": report_index.metric_info}))
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    counts = f"{format_count(len(models), 'model')}, {format_count(len(evaluations), 'evaluation')}"
    return f"report: {counts}, {size / 1e6:.1f} MB in {directory}"


def _estimates(path: Path) -> dict[str, list[dict]]:
    """Return the values by labels of each evaluation that has any."""
    found: dict[str, list[dict]] = {}
    for row in rows_of(artifacts.read(path, ESTIMATES)):
        shown = {name: round_significant(row[name]) for name in FIELDS["records"]["Estimate"]}
        found.setdefault(row["evaluation"], []).append(record("Estimate", shown))
    return found


def _write_audit_lists(out: Path, path: Path) -> int:
    """Write the lists of items that a speaker should read, each in a file of its own; return their number."""
    table, metadata = artifacts.read_all(path, AUDIT_LIST)
    lists = metadata["lists"]
    rows: dict[str, list[dict]] = {each["evaluation"]: [] for each in lists}
    for row in rows_of(table):
        shown = {name: round_significant(value) for name, value in row.items()}
        rows[row["evaluation"]].append(record("ItemToRead", shown))
    write_data_file(out, "audit", [record("AuditList", each) for each in lists])
    for number, own in enumerate(rows.values()):
        write_data_file(out, f"a{number}", own)
    return len(lists)


def _write_beside(out: Path, results: Path, index: ReportIndex, has_series: bool, external: bool) -> bool:
    """Write which metrics decide between models and series, and values from outside; return if there is any."""
    kinds = {"deciding_models": DECIDING_METRICS}
    kinds |= {"deciding_metrics": DECIDING_METRICS} if has_series else {}
    kinds |= {"unpaired": UNPAIRED} if external else {}
    content: dict[str, list] = {"Deciding": [], "Unpaired": []}
    for name, kind in kinds.items():
        record_name = "Unpaired" if kind is UNPAIRED else "Deciding"
        for row in rows_of(_read_optional(results, name, kind)):
            own = {"title": display_name(row["metric"]), "headline": None} | row
            own["evaluation"] = None if row["evaluation"] is None else index.evaluations.number(row["evaluation"])
            shown = {key: publishable(round_significant(own[key])) for key in FIELDS["records"][record_name]}
            content[record_name].append(record(record_name, shown))
    if any(content.values()):
        write_data_file(out, "beside", record("Beside", {key.lower(): rows for key, rows in content.items()}))
    return any(content.values())


def _write_languages(out: Path, summary: Path, index: ReportIndex) -> bool:
    """Write the consistency between languages, and the items to read of each evaluation; return if there is any."""
    table, metadata = artifacts.read_all(summary / "between_languages.parquet", BETWEEN_LANGUAGES)
    columns = INTERVAL | {"p": "p_value", "n": "n", "excluded": "n_excluded", "chance": "chance"}
    columns |= {name: name for name in ("model", "baseline", "reference", "metric")}
    rows = [
        record(
            "BetweenLanguages",
            rounded(row, columns)
            | {"evaluation": index.evaluations.number(row["evaluation"]), "title": display_name(row["metric"])},
        )
        for row in rows_of(table)
    ]
    lists: dict[int, list[dict]] = {}
    for row in rows_of(artifacts.read(summary / "language_items.parquet", LANGUAGE_ITEMS)):
        shown = record("LanguageItem", {name: row[name] for name in FIELDS["records"]["LanguageItem"]})
        lists.setdefault(index.evaluations.number(row["evaluation"]), []).append(shown)
    for number, own in lists.items():
        write_data_file(out, f"e{number}/languages", own)
    notes = [f"{note['evaluation']}: {note['note']}." for note in metadata["notes"]]
    write_data_file(out, "languages", record("Languages", {"rows": rows, "lists": list(lists), "notes": notes}))
    return bool(rows or notes)


def _by_evaluation(results: pa.Table) -> dict[str, pa.Table]:
    """Return the rows of each evaluation, in order, as tables: as Python objects, those of all would take gigabytes."""
    names = results["evaluation"].combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    ordered = results.take(np.argsort(codes, kind="stable"))
    ends = np.bincount(codes, minlength=len(names.dictionary)).cumsum().tolist()
    starts = [0, *ends][:-1]
    return {
        name: ordered.slice(start, end - start)
        for name, start, end in zip(names.dictionary.to_pylist(), starts, ends, strict=True)
    }


def _write_evaluations(out: Path, evaluations: list[str], models: dict[int, str], results: Path, processes: int):
    """Yield what `write_evaluation` returns for each evaluation, in order."""
    if len(evaluations) * len(models) < FILES_PER_POOL:
        processes = 1
    write = partial(write_evaluation, out, models=models, results=results)
    workers = pool(processes) if processes > 1 else contextlib.nullcontext()
    with workers as executor, Progress("report", len(evaluations), "evaluation") as progress:
        for written in (executor.map if executor else map)(write, range(len(evaluations)), evaluations):
            progress.advance()
            yield written


def _read_optional(results: Path, name: str, kind) -> pa.Table:
    """Read a table of the summary that only exists if models were compared; empty otherwise."""
    path = results / "summary" / f"{name}.parquet"
    return artifacts.read(path, kind) if path.exists() else kind.schema.empty_table()


def _write_assets(out: Path) -> None:
    """Copy page, styles, scripts and libraries."""
    sources = [ASSETS / "index.html", ASSETS / "style.css"]
    sources += [
        path for directory in ("js", "lib") for path in sorted((ASSETS / directory).rglob("*")) if path.is_file()
    ]
    for source in sources:
        target = out / source.relative_to(ASSETS)
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
