"""The small run of `report_run` with values by labels of speakers, and a borrowed one."""

from pathlib import Path

from vernacular.comparison.schema import ESTIMATES

from support import report_run
from support.report_run import OPTIONS, write_artifact


def _row(**columns) -> dict:
    values = {"model": "base", "evaluation": OPTIONS, "unit": "share", "labels_only": 0.6, "labels_only_low": 0.5}
    values |= {"labels_only_high": 0.7, "value": 0.6, "ci_low": 0.5, "ci_high": 0.7, "n_labels": 100, "n": 260}
    return dict.fromkeys(ESTIMATES.schema.names) | values | columns


def write_run(root: Path) -> dict:
    """Write the run's artifacts below `root`; return the arguments of `page.build` except `out`."""
    arguments = report_run.write_run(root)
    alpha = {"alpha": 0.71, "alpha_low": 0.6, "alpha_high": 0.8, "annotators": 2}
    score = {"score": "accuracy", "rho": -0.412, "ratio": 0.82, "score_only": 0.5, "value": 0.55, "ci_low": 0.48}
    rows = [
        _row(metric="human", **alpha),
        _row(metric="human_by_accuracy", ci_high=0.62, **score, **alpha),
        _row(metric="human", baseline="base", model="<i>tuned</i>", labels_only=0.1, labels_only_low=-0.05, **alpha),
        _row(metric="accuracy_borrowed", score="other", ratio=0.73),
    ]
    write_artifact(root / "results" / "summary" / "labels.parquet", ESTIMATES, rows, {})
    return arguments | {"estimates": True}
