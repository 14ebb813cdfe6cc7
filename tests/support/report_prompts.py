"""A run of two models for report tests: one evaluation with three prompts, whose comparison is computed, and one without."""

from pathlib import Path

import pyarrow as pa
from vernacular.comparison.compare import compare_all
from vernacular.comparison.schema import COMPARISONS, OVERALL, PROMPTS, RANKINGS
from vernacular.core import artifacts
from vernacular.core.model_record import ModelRecord
from vernacular.inference.schema import SCORES
from vernacular.metrics.schema import METRICS, RESULTS
from vernacular.protocols.schema import REQUESTS
from vernacular.summary.grid import combine_tables, to_arrow
from vernacular.summary.prompts import add_prompt_means

from support.report_run import (
    request_row,
    score_row,
    setting_of,
    task_row,
    task_tables,
    write_artifact,
    write_task_results,
)

MODELS = ["base", "tuned"]
EVALUATION, OTHER = "quiz.gl.letters.0shot", "trivia.gl.letters.0shot"
PROMPTS_OF = {EVALUATION: "default", f"{EVALUATION}.formal": "formal", f"{EVALUATION}.short": "short"}
MEAN = f"{EVALUATION}.all"
WORDINGS = {"default": "Que bebe?", "formal": "Diga que bebe.", "short": "Bebe"}
N = 12


def write_run(root: Path) -> dict:
    """Write the run's artifacts below `root`; return the arguments of `page.build` except `out`."""
    results, metric_rows = root / "results", []
    evaluations = {name: described(name) for name in (*PROMPTS_OF, OTHER)}
    for number, (name, setting) in enumerate(evaluations.items()):
        question = f"{WORDINGS[setting['prompt']]}\nA. auga\nB. leite\nResposta:"
        requests = [
            request_row(f"q{i}", f"choice:{c}", "", question, f" {'AB'[c]}") for i in range(N) for c in range(2)
        ]
        write_artifact(
            results / "requests" / f"{name}.parquet",
            REQUESTS,
            requests,
            {key: value for key, value in setting.items() if key != "items_stem"},
        )
        for m, model in enumerate(MODELS):
            correct = [(5 * i + number) % N < 4 + number + 3 * m for i in range(N)]
            write_outputs(results / model, name, question, correct)
            metric_rows.append(metrics_row_of(model, name, setting, sum(correct) / N))
    tables = task_tables(results, MODELS, evaluations)
    found = compare_all([tuple(MODELS)], tables, evaluations, resamples=200)
    summary = results / "summary"
    long = add_prompt_means(combine_tables([pa.Table.from_pylist(metric_rows, schema=METRICS.schema)]), found.prompts)
    artifacts.write(
        summary / "results.parquet", RESULTS, to_arrow(long), {"models": [], "notes": [], "fingerprint": "x"}
    )
    for kind, rows in (
        (COMPARISONS, found.comparisons),
        (RANKINGS, found.rankings),
        (OVERALL, found.overall),
        (PROMPTS, found.prompts),
    ):
        write_artifact(summary / f"{kind.name}.parquet", kind, rows, {})
    return {
        "results": results,
        "models": MODELS,
        "evaluations": list(evaluations),
        "records": [ModelRecord(name=name, source=name) for name in MODELS],
        "changes": {},
        "tasks": {"quiz": {"title": "A quiz"}},
        "prompts": {f"{EVALUATION}.{name}": {"differs": f"{name} words", "reviewed": False} for name in WORDINGS},
    }


def described(name: str) -> dict:
    """Return the setting of an evaluation, as the specification of the comparison holds it."""
    prompt = PROMPTS_OF.get(name, "default")
    setting = setting_of(name.removesuffix(f".{prompt}"))
    return setting | {"prompt": prompt, "items_stem": f"{setting['task']}.gl"}


def write_outputs(directory: Path, name: str, question: str, correct: list[bool]) -> None:
    rows, scores = [], []
    for i, is_correct in enumerate(correct):
        chosen = 0 if is_correct else 1
        outcome = {"choices": ["auga", "leite"], "gold": [0], "prediction": "AB"[chosen], "predicted_indices": [chosen]}
        scored = {"option_scores": [-1.0, -2.0][:: 1 if is_correct else -1], "correct": is_correct, "tie": False}
        rows.append(task_row(f"q{i}", "Que bebe?", None, {"accuracy": float(is_correct)}) | outcome | scored)
        scores += [score_row(f"q{i}", f"choice:{c}", len(question), [2], [2.0]) for c in range(2)]
    write_task_results(directory, name, rows)
    write_artifact(directory / "scores" / f"{name}.parquet", SCORES, scores, {})


def metrics_row_of(model: str, name: str, setting: dict, value: float) -> dict:
    known = {key: setting[key] for key in ("task", "language", "protocol", "shots", "seed", "style", "prompt")}
    return known | {
        "model": model, "evaluation": name, "metric": "accuracy", "unit": "share", "headline": True, "n": N,
        "higher_is_better": True, "category": "", "n_flagged": 0, "n_ties": 0, "chance_level": 0.5, "signature": "a",
        "metric_group": "surprisal", "value": value, "ci_low": value - 0.2, "ci_high": value + 0.2,
    }  # fmt: skip
