"""Metrics that lm-eval could not compute are computed again by the next run."""

from pathlib import Path

from vernacular.config.directories import clear_unavailable
from vernacular.core import artifacts
from vernacular.core.metadata import unavailable
from vernacular.metrics.schema import TASK_RESULTS


def test_failed_metrics_are_deleted_at_end_of_run_with_the_results_computed_from_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, metadata in (
        ("failed", {"outcome": unavailable("the filters take too long")}),
        ("complete", {"values": []}),
    ):
        for stage in ("lm_eval", "tasks"):
            artifacts.write(Path("results", "m", stage, f"{name}.parquet"), TASK_RESULTS, [], metadata)
    deleted = clear_unavailable(Path("resources"), Path("results"))
    assert deleted == [Path("results/m/lm_eval/failed.parquet"), Path("results/m/tasks/failed.parquet")]
