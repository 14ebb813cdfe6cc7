"""When a run has ended, what another run may try again is deleted, with what was computed from it, and nothing else."""

from pathlib import Path

import pytest
from vernacular.config.directories import clear_unavailable
from vernacular.core import artifacts
from vernacular.core.metadata import Outcome, not_applicable, unavailable
from vernacular.core.model_record import write_record, write_status
from vernacular.data.schema import ITEMS
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.schema import METRICS, SIMILARITIES, TASK_RESULTS, TOOL_RESULTS
from vernacular.protocols.schema import REQUESTS

KINDS = {
    "resources/items/t.parquet": ITEMS, "results/requests/e.parquet": REQUESTS, "results/m/scores/e.parquet": SCORES,
    "results/m/generations/e.parquet": GENERATIONS, "results/m/lm_eval/e.parquet": TOOL_RESULTS,
    "results/m/similarity/e.parquet": SIMILARITIES, "results/m/tasks/e.parquet": TASK_RESULTS,
    "results/m/metrics.parquet": METRICS, "results/n/scores/e.parquet": SCORES, "results/m/scores/f.parquet": SCORES,
    "results/n/tasks/e.parquet": TASK_RESULTS, "results/m/tasks/f.parquet": TASK_RESULTS,
}  # fmt: skip
STATUS = "results/inference_status/m/1of1.json"
RESULTS_OF_E = ["generations", "lm_eval", "scores", "similarity", "tasks"]
OF_M = [f"results/m/{stage}/e.parquet" for stage in RESULTS_OF_E]


@pytest.fixture
def deleted(tmp_path, monkeypatch):
    """Write the files of a complete run of models m and n; return a function that clears them."""
    monkeypatch.chdir(tmp_path)
    for path, kind in KINDS.items():
        artifacts.write(Path(path), kind, [], {"fingerprint": "x"})
    write_record("resources/models/m.json", {"name": "m"})
    write_status(STATUS, {"m": {"e": Outcome(reason="computed")}, "n": {"e": Outcome(reason="computed")}})
    return lambda: sorted(map(str, clear_unavailable(Path("resources"), Path("results"))))


def test_complete_results_are_kept(deleted):
    assert deleted() == []


@pytest.mark.parametrize("outcome", [unavailable("gated"), Outcome(missing={"cosine": "no encoder"}), None])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("resources/items/t.parquet", []),
        ("results/requests/e.parquet", [*OF_M, "results/n/scores/e.parquet", "results/n/tasks/e.parquet"]),
        ("results/m/scores/e.parquet", [path for path in OF_M if "scores" not in path]),
        ("results/m/similarity/e.parquet", ["results/m/tasks/e.parquet"]),
        ("results/m/lm_eval/e.parquet", ["results/m/similarity/e.parquet", "results/m/tasks/e.parquet"]),
        ("results/m/tasks/e.parquet", []),
        ("results/m/metrics.parquet", []),
    ],
)
def test_what_may_be_tried_again_is_deleted_with_what_was_computed_from_it(deleted, path, expected, outcome):
    if outcome:
        artifacts.write(Path(path), KINDS[path], [], {"fingerprint": "x", "outcome": outcome})
    else:
        Path(path).write_bytes(b"damaged")
    assert deleted() == sorted([path, *expected])
    assert deleted() == []


def test_results_of_an_unavailable_model_and_of_failed_evaluations_are_deleted(deleted):
    write_status(STATUS, {"m": {"e": unavailable("no memory"), "f": Outcome()}, "n": {"e": Outcome()}})
    assert deleted() == sorted([STATUS, *OF_M])
    write_record("resources/models/m.json", {"name": "m", "unavailable": "gated"})
    of_f = [f"results/m/{path}.parquet" for path in ("metrics", "scores/f", "tasks/f")]
    assert deleted() == ["resources/models/m.json", *of_f]


def test_what_is_not_applicable_is_kept_until_its_checkpoint_is_back(deleted, tmp_path):
    outcome = not_applicable("deleted", awaits=str(tmp_path / "checkpoint-5"))
    scores = "results/m/scores/f.parquet"
    artifacts.write(Path(scores), SCORES, [], {"fingerprint": "x", "outcome": outcome})
    artifacts.write(
        Path("results/n/scores/e.parquet"), SCORES, [], {"fingerprint": "x", "outcome": not_applicable("masked")}
    )
    assert deleted() == []
    (tmp_path / "checkpoint-5").mkdir()
    assert deleted() == [scores, "results/m/tasks/f.parquet"]
