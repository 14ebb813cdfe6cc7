"""A run of two models for report tests: letters in another order than the options, minimal pairs without a context in two
languages, and values below chance."""

from pathlib import Path

from vernacular.comparison.schema import CHANGES, COMPARISONS, OVERALL, RANKINGS
from vernacular.core.model_record import ModelRecord
from vernacular.inference.schema import SCORES
from vernacular.metrics.schema import RESULTS

from support.report_run import (
    request_row,
    score_row,
    setting_of,
    task_row,
    write_artifact,
    write_requests,
    write_task_results,
)

MODELS = ["base", "tuned"]
LETTERS = "quiz.gl.letters.0shot"
PAIRS = ["pairs.gl.minimal_pair.0shot", "pairs.es.minimal_pair.0shot"]
EVALUATIONS = [LETTERS, *PAIRS]
QUESTION = "Que bebe?\nA. auga\nB. leite\nResposta:"
PAIR = ["Ela come pan moi duro.", "Ela comen pan moi duro."]
N = 4
CONSTANT = {
    "code": "constant", "severity": "failure", "sentence": "3 of 4 choices are “B” (</script>).", "threshold": "95 %",
    "count": 3, "n": 4, "share": 0.75, "examples": [{"item": "q1", "text": "gold A, predicted B"}],
}  # fmt: skip


def write_run(root: Path, pair=PAIR) -> dict:
    """Write the run's artifacts below `root`, with a minimal pair; return the arguments of `page.build` except `out`."""
    results, metric_rows, rankings = root / "results", [], []
    letters = [request_row(f"q{i}", f"choice:{1 - c}", "", QUESTION, f" {'AB'[c]}") for i in range(N) for c in range(2)]
    write_requests(results, LETTERS, letters)
    for evaluation in PAIRS:
        requests = [request_row(f"{i:040x}", f"choice:{c}", "", "", pair[c]) for i in range(N) for c in range(2)]
        write_requests(results, evaluation, requests)
    for m, model in enumerate(MODELS):
        _write_letters(results / model, m)
        for evaluation in PAIRS:
            _write_pairs(results / model, evaluation, m, pair)
        for evaluation in EVALUATIONS:
            value = 0.25 + 0.5 * m if evaluation in PAIRS else 0.25
            metric_rows += _values(model, evaluation, value)
            place = {"best": "tuned", "difference": 0.0 if m else -0.5, "in_best_group": True, "rank": 1}
            place |= {"compared_with": list(MODELS), "worse_than": []}
            rankings.append(
                setting_of(evaluation) | {"evaluation": evaluation, "metric": "accuracy", "model": model} | place
            )
    summary = results / "summary"
    write_artifact(summary / "results.parquet", RESULTS, metric_rows, {"models": [], "notes": []})
    write_artifact(summary / "rankings.parquet", RANKINGS, rankings, {})
    overall = {"scope": "all", "n_evaluations": 3, "n_excluded": 0, "win_rate": 0.5, "rank": 1}
    values = [{"model": "base", "mean": -0.1, "ci_low": -0.3, "ci_high": 0.1},
              {"model": "tuned", "mean": 0.2, "ci_low": 0.1, "ci_high": 0.3}]  # fmt: skip
    write_artifact(summary / "overall.parquet", OVERALL, [overall | row for row in values], {})
    write_artifact(summary / "comparisons.parquet", COMPARISONS, [_difference(e) for e in EVALUATIONS], {})
    changes = results / "comparisons" / "base--tuned" / "changes.parquet"
    change = {
        "evaluation": PAIRS[0],
        "change": "improved",
        "margin_change": 1.0,
        "prompt": "",
        "choices": pair,
        "gold": [0],
    }
    texts = {"baseline_prediction": pair[1], "candidate_prediction": pair[0]}
    write_artifact(changes, CHANGES, [change | texts | {"item_id": f"{i:040x}"} for i in (1, 2)], {})
    return {
        "results": results,
        "models": MODELS,
        "evaluations": EVALUATIONS,
        "records": [ModelRecord(name=name, source=name) for name in MODELS],
        "changes": {("base", "tuned"): changes},
        "tasks": {"quiz": {"title": "A quiz", "note": "For readers."}, "pairs": {"title": "Minimal pairs"}},
    }


def _write_letters(directory: Path, m: int) -> None:
    rows, scores = [], []
    for i in range(N):
        chosen = 0 if i == 0 else 1
        outcome = {"choices": ["auga", "leite"], "gold": [0], "prediction": "AB"[chosen], "predicted_indices": [chosen]}
        rows.append(
            task_row(f"q{i}", QUESTION, None, {"accuracy": float(chosen == 0)})
            | outcome
            | {"option_scores": [-1.0, -2.0] if chosen == 0 else [-2.0, -1.0], "correct": chosen == 0, "tie": False}
        )
        scores += [score_row(f"q{i}", f"choice:{1 - c}", len(QUESTION), [2], [2.0 + m]) for c in range(2)]
    labels = [{"label": "A", "predicted": 1, "gold": 4}, {"label": "B", "predicted": 3, "gold": 0}]
    tokens = {"<think>": 3, "Ġthe": 1}
    profile = {
        "labels": labels,
        "confusion": [[1, 3, 0], [0, 0, 0]],
        "label_mass": 0.25,
        "top_tokens": tokens,
        "lengths": [5.0, 4.0, 4.5],
    }
    length = {"code": "length", "severity": "warning", "sentence": "Long.", "threshold": "-", "n": 4}
    write_task_results(directory, LETTERS, rows, diagnoses=[] if m else [CONSTANT, length], profile=profile)
    write_artifact(directory / "scores" / f"{LETTERS}.parquet", SCORES, scores, {})


def _write_pairs(directory: Path, evaluation: str, m: int, pair: list[str]) -> None:
    rows, scores = [], []
    for i in range(N):
        chosen = 0 if i % 4 == 0 or (m and i in (1, 2)) else 1
        outcome = {"choices": pair, "gold": [0], "prediction": pair[chosen], "predicted_indices": [chosen]}
        rows.append(
            task_row(f"{i:040x}", "", ("agreement", "order")[i % 2], {"accuracy": float(chosen == 0)})
            | outcome
            | {"option_scores": [-8.0, -9.0] if chosen == 0 else [-9.0, -8.0], "correct": chosen == 0, "tie": False}
        )
        for c, text in enumerate(pair):
            lengths = [len(word) + (k > 0) for k, word in enumerate(text.split())]
            scores.append(score_row(f"{i:040x}", f"choice:{c}", 0, lengths, [2.0 + c + m] * len(lengths)))
    length = {"code": "length", "severity": "warning", "sentence": "-", "threshold": "-", "n": 4, "share": 0.5}
    write_task_results(directory, evaluation, rows, diagnoses=[length] if evaluation == PAIRS[0] and not m else [])
    write_artifact(directory / "scores" / f"{evaluation}.parquet", SCORES, scores, {})


def _values(model: str, evaluation: str, value: float) -> list[dict]:
    chance, majority = (0.5, 0.75) if evaluation in PAIRS else (0.25, 0.25)
    common = {"model": model, "metric": "accuracy", "unit": "share", "headline": True, "higher_is_better": True,
              "n_flagged": 0, "n_ties": 0, "chance_level": chance, "majority_baseline": majority, "signature": "a",
              "metric_group": "surprisal", "evaluation": evaluation} | setting_of(evaluation)  # fmt: skip
    bounds = {"value": value, "ci_low": max(value - 0.2, 0), "ci_high": value + 0.2}
    categories = ["agreement", "order"] if evaluation in PAIRS else []
    return [common | bounds | {"category": name, "n": N if not name else 2} for name in ("", *categories)]


def _difference(evaluation: str) -> dict:
    """Return a row of the comparison: the pairs in the first language differ, the other evaluations do not."""
    differs = evaluation == PAIRS[0]
    low, high = (0.1, 0.9) if differs else (0.0, 0.0)
    return setting_of(evaluation) | {
        "evaluation": evaluation, "metric": "accuracy", "baseline": "base", "candidate": "tuned", "category": "",
        "unit": "share", "higher_is_better": True, "headline": True, "n": N, "n_baseline": N, "n_candidate": N,
        "baseline_value": 0.25, "candidate_value": 0.75 if differs else 0.25, "difference": 0.5 if differs else 0.0,
        "ci_low": low, "ci_high": high, "p_value": 0.01 if differs else 1.0, "p_holm": 0.03 if differs else 1.0,
        "n_tests": 3, "significant": differs, "better": "candidate" if differs else None, "test": "exact McNemar, mid-p",
        "both_correct": 1, "both_incorrect": 1 if differs else 3, "baseline_only_correct": 0,
        "candidate_only_correct": 2 if differs else 0,
    }  # fmt: skip
