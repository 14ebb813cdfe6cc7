"""The report page: a folder with `index.html` that opens from a disk, without a network and without a server.

`index.html` is a shell; scripts, styles and libraries are copied beside it from `workflow/report/`, Vega comes from the
installed vl-convert, and everything there is to show comes in pieces (see `pieces`).
"""

import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import vl_convert
from tqdm import tqdm

from vernacular import __version__, artifacts
from vernacular.comparison.schema import COMPARISONS, OVERALL, STANDINGS
from vernacular.errors import ArtifactError
from vernacular.report import leaderboard, provenance
from vernacular.report.comparisons import write_pairs
from vernacular.report.evaluation import write_evaluation
from vernacular.report.leaderboard import Names
from vernacular.report.pieces import write_piece
from vernacular.report.plots import specifications
from vernacular.summary.schema import RESULTS

ASSETS = Path(__file__).resolve().parents[2] / "report"
_LONG = ["model", "evaluation", *leaderboard.SETTING, "category", "metric", "value", "ci_low", "ci_high", "n",
         "n_flagged", "n_ties", "chance", "majority", "unit", "headline", "higher_is_better", "signature"]  # fmt: skip


def build(
    results: Path,
    out: Path,
    *,
    models: list[str],
    evaluations: list[str],
    records: list[dict],
    changes: dict[tuple[str, str], Path],
    benchmarks: Path | None = None,
    title: str = "Vernacular",
) -> str:
    """Write the page for `models` × `evaluations` into the folder `out`, which it empties first; returns what was made.

    results: the folder with `summary/`, `requests/` and a folder per model. records: the models' records. changes:
    (baseline, candidate) -> its CHANGES file. benchmarks: the folder of Snakemake's benchmark files, if there are any.
    Raises ArtifactError naming a file that is missing or damaged; comparisons, standings and overall may be missing.
    """
    _empty(out)
    long = artifacts.read(results / "summary" / "results.parquet", RESULTS).select(_LONG).to_pandas()
    notes = artifacts.metadata(results / "summary" / "results.parquet")["notes"]
    asked = {name: long[long["evaluation"] == name] for name in evaluations}
    of_models, of_evaluations, of_metrics = Names(models), Names(evaluations), Names()
    facts: list[dict] = []
    index = {"title": title, "version": __version__, "evaluations": [], "cells": []}
    runs, data_sets, positions = [], {}, {}
    for number, name in enumerate(tqdm(evaluations, desc="report", disable=None)):
        rows = asked[name]
        whole = rows[rows["category"].fillna("") == ""]
        found = leaderboard.cells(whole, of_models, of_metrics)
        _describe(rows, of_metrics, facts)
        task, positions[name], of_runs = write_evaluation(out, number, name, dict(enumerate(models)), results)
        task |= {"cells": found, "categories": leaderboard.by_category(rows[rows["category"].fillna("") != ""],
                                                                       of_models, of_metrics)}  # fmt: skip
        signed = whole[whole["signature"].notna()]
        task["signatures"] = sorted(
            {(of_metrics.number((row.protocol, row.metric)), row.signature) for row in signed.itertuples()}
        )
        task["dataset"] = data_sets[name] = provenance.data_set(task.pop("facts"))
        write_piece(out, f"e{number}/task", task)
        runs += [provenance.run(model, number, note) for model, note in of_runs.items()]
        index["evaluations"].append(
            {"id": name, "items": task["items"], "speaks": leaderboard.speaking(found, facts)}
            | (leaderboard.setting(rows) if len(rows) else _setting_of(of_runs, results, name))
        )
        index["cells"] += [[number, *cell] for cell in found if facts[cell[1]]["headline"]]
    index["missing"] = leaderboard.missing(notes, of_models, of_evaluations)
    index["places"] = leaderboard.places(
        _optional(results, "standings", STANDINGS), of_models, of_evaluations, of_metrics
    )
    index["overall"] = leaderboard.overall(_optional(results, "overall", OVERALL), of_models)
    comparisons = _optional(results, "comparisons", COMPARISONS)
    index["pairs"] = write_pairs(out, comparisons, changes, positions, of_models, of_evaluations, of_metrics)
    _describe(comparisons.to_pandas(), of_metrics, facts)
    index |= {"models": of_models.all, "asked_models": len(models), "metrics": facts}
    index["names"] = of_evaluations.all  # those asked here, then those that only a note or a comparison knows
    write_piece(out, "index", index)
    write_piece(
        out,
        "provenance",
        {
            "models": provenance.models(records),
            "data sets": [row for row in {_data_set_key(row): row for row in data_sets.values() if row}.values()],
            "runs": runs,
            "notes": provenance.note_rows(notes, of_models, of_evaluations),
            "jobs": provenance.jobs(benchmarks),
            "version": __version__,
        },
    )
    _write_shell(out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return f"report: {len(models)} models × {len(evaluations)} evaluations, {size / 1e6:.1f} MB in {out}"


def _empty(out: Path) -> None:
    """Remove an earlier page, and nothing else: a folder that holds no page of ours is left as it is."""
    if out.exists() and any(out.iterdir()):
        if not (out / "data" / "index.js").exists():
            raise ArtifactError(f"{out}: holds other files than a report page; name an empty folder.")
        shutil.rmtree(out)


def _optional(results: Path, name: str, kind) -> pa.Table:
    """A table of the summary that is only there where something was compared."""
    path = results / "summary" / f"{name}.parquet"
    return artifacts.read(path, kind) if path.exists() else kind.schema.empty_table()


def _describe(rows: pd.DataFrame, of_metrics: Names, facts: list[dict]) -> None:
    """Give every metric its number, and `facts` its description at that place."""
    for row in rows.drop_duplicates(["protocol", "metric"]).to_dict("records"):
        number = of_metrics.number((row["protocol"], row["metric"]))
        facts.extend([{}] * (number + 1 - len(facts)))
        facts[number] = facts[number] or leaderboard.metric_facts(row["protocol"], row["metric"], row)


def _setting_of(runs: dict[int, dict], results: Path, name: str) -> dict:
    """The setting of an evaluation without any value, from its requests."""
    note = artifacts.metadata(results / "requests" / f"{name}.parquet")
    return {key: note.get(key) for key in leaderboard.SETTING}


def _data_set_key(row: dict) -> tuple:
    return row["task"], row["language"]


def _write_shell(out: Path) -> None:
    """Copy page, styles and scripts, and write Vega and the plots beside them."""
    shutil.copy(ASSETS / "index.html", out / "index.html")
    shutil.copy(ASSETS / "style.css", out / "style.css")
    for folder in ("js", "lib"):
        shutil.copytree(ASSETS / folder, out / folder)
    (out / "lib" / "vega.js").write_text(vl_convert.javascript_bundle(), "utf-8")
    write_piece(out, "plots", specifications())
