"""A small run for report tests: three models with unusual names, three evaluations, hostile texts, one comparison."""

from pathlib import Path

from vernacular.comparison.schema import CHANGES, COMPARISONS, OVERALL, RANKINGS
from vernacular.core import artifacts
from vernacular.core.metadata import unavailable
from vernacular.core.model_record import ModelRecord
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.schema import RESULTS, TASK_RESULTS, TOKENIZERS
from vernacular.protocols.schema import REQUESTS

MODELS = ["plain", "=cmd()", "__proto__"]
OPTIONS, SENTENCES, GENERATION = "olas.gl.options.0shot", "cola.ar.acceptability.0shot", "cloze.sr.generation.2shot"
UNAVAILABLE = "gone.gl.letters.0shot"  # its dataset is unavailable
EVALUATIONS = [OPTIONS, SENTENCES, GENERATION, UNAVAILABLE]
N = 260  # items of OPTIONS: more than one data file
HOSTILE = {
    "i3": "</script><script>window.pwned = 1</script>",
    "i4": '<img src=x onerror="window.pwned = 2"> & "quotes" \'single\' ]]> {{x}} ${y}',
    "i5": "right-to-left \u202eoverride\u202c, isolate \u2067x\u2069, separators \u2028 \u2029, nul-like \x01",
    "i6": "x" * 100_000,
    "i7": "=cmd()|'/C calc'!A0",
}
ARABIC = "أضف أوراق النعناع إلى الإبريق"


def write_run(root: Path) -> dict:
    """Write the run's artifacts below `root`; return the arguments of `page.build` except `out`."""
    results = root / "results"
    _write_all_requests(results)
    metric_rows = []
    for model_index, model in enumerate(MODELS):
        _write_options(results / model, model_index)
        _write_sentences(results / model, model_index)
        _write_generations(results / model, model_index)
        write_artifact(
            results / model / "tasks" / f"{UNAVAILABLE}.parquet",
            TASK_RESULTS,
            [],
            {"outcome": unavailable("<b>gated</b>")},
        )
        metric_rows += _metric_rows(model, model_index)
    notes = [{"model": MODELS[0], "evaluation": GENERATION, "kind": "flagged", "note": "truncated", "count": 2}]
    notes.append(
        {"model": "elsewhere", "evaluation": None, "kind": "external results", "note": "9 of 10 matched", "count": None}
    )
    notes += [
        {"model": m, "evaluation": UNAVAILABLE, "kind": "unavailable", "note": "<b>gated</b>", "count": None}
        for m in MODELS
    ]
    write_artifact(results / "summary" / "results.parquet", RESULTS, metric_rows, {"models": [], "notes": notes})
    changes = _write_comparison(results)
    write_artifact(results / "summary" / "tokenizers.parquet", TOKENIZERS, _tokenizer_rows(), {})
    jobs = root / "benchmarks" / "infer"
    jobs.mkdir(parents=True)
    (jobs / "plain.tsv").write_text("s\th:m:s\tmax_rss\tcpu_time\n12.5\t0:00:12\t-\t11.0\n")
    return {
        "results": results,
        "models": MODELS,
        "evaluations": EVALUATIONS,
        "records": [ModelRecord(name=name, source="lab/" + name, revision="abc") for name in MODELS],
        "changes": {(MODELS[0], MODELS[1]): changes},
        "benchmarks": root / "benchmarks",
        "tasks": {
            "olas": {"title": "Waves <b>", "note": "A remark <i>for readers</i>."},
            "cola": {"title": "Sentences"},
        },
    }


def _tokenizer_rows() -> list[dict]:
    """Return rows of all models in Galician, Arabic and English; only the items of olas are parallel."""
    empty = dict.fromkeys(TOKENIZERS.schema.names)
    rows = []
    for number, model in enumerate(MODELS):
        for language, tokens, words in (("ar", 300 + number, 100), ("en", 100, 80), ("gl", 150, 100)):
            counts = {"items": 9, "texts": 18, "tokens": tokens, "bytes": 600, "characters": 500, "words": words}
            ratios = {"tokens_per_word": tokens / words, "tokens_per_byte": tokens / 600, "split_share": 0.25}
            row = (
                empty
                | {"model": model, "tokenizer": "0123456789ab", "language": language, "task": ""}
                | counts
                | ratios
            )
            rows += [row | {"evaluation": ""}, row | {"task": "olas", "evaluation": f"olas.{language}.options.0shot"}]
            if language != "en":
                rows[-1] |= {"parallel_items": 9, "premium": tokens / 100, "premium_low": tokens / 110}
                rows[-1] |= {"premium_high": tokens / 90, "byte_premium": 1.25, "bits_ratio": 1.5}
    return rows


def prompt_of(i: int) -> str:
    return HOSTILE.get(f"i{i}", f"Pregunta número {i}")


def correct(model_index: int, i: int) -> bool:
    return i % (model_index + 2) != 0


def _write_all_requests(results: Path) -> None:
    option_requests = []
    for i in range(N):
        for choice, option in enumerate(_choices(i)):
            option_requests.append(request_row(f"i{i}", f"choice:{choice}", "", prompt_of(i), " " + option))
    write_requests(results, OPTIONS, option_requests)
    write_requests(results, SENTENCES, [request_row(f"s{i}", "sentence", "", "", _sentence(i)) for i in range(4)])
    generation_requests = [
        request_row(f"w{i}", "response", "Пример: да\n\n", f"Питање {i}:", None)
        | {"messages": [{"role": "user", "content": f"Питање {i}:"}]}
        for i in range(3)
    ]
    write_requests(results, GENERATION, generation_requests)
    write_requests(results, UNAVAILABLE, [])


def _choices(i: int) -> list[str]:
    return ["right", "wrong"] if i != 4 else ["<b>right</b>", "</td>wrong"]


def _sentence(i: int) -> str:
    return f"{ARABIC} {'😀' * i}".strip()


def request_row(item: str, role: str, prefix: str, text_before: str, span: str | None) -> dict:
    start = len(prefix + text_before)
    return {
        "request_id": f"{item}/{role}",
        "item_id": item,
        "role": role,
        "kind": "generate" if span is None else "score",
        "prefix": prefix,
        "text": text_before + (span or ""),
        "span_start": None if span is None else start,
        "span_end": None if span is None else start + len(span),
    }


def write_requests(results: Path, evaluation: str, rows: list[dict]) -> None:
    write_artifact(results / "requests" / f"{evaluation}.parquet", REQUESTS, rows, setting_of(evaluation))


def setting_of(evaluation: str) -> dict:
    task, language, protocol, shots = evaluation.split(".")
    return {"task": task, "language": language, "protocol": protocol, "shots": int(shots[0]), "seed": 0} | {
        "style": "default"
    }


def score_row(item: str, role: str, start: int, lengths: list[int], surprisals: list[float]) -> dict:
    offsets, position = [], start
    for length in lengths:
        offsets.append([position, position + length])
        position += length
    return {
        "request_id": f"{item}/{role}",
        "item_id": item,
        "role": role,
        "tokens": ["?"] * len(lengths),
        "offsets": offsets,
        "logprobs": [-x for x in surprisals],
    }


def _write_options(directory: Path, model_index: int) -> None:
    rows, scores = [], []
    for i in range(N):
        is_correct = correct(model_index, i)
        values = {"accuracy": float(is_correct)}
        rows.append(
            task_row(f"i{i}", prompt_of(i), "even" if i % 2 == 0 else "odd", values)
            | {
                "choices": _choices(i),
                "gold": [0],
                "option_scores": [-2.0, -3.0 - i / 100] if is_correct else [-3.0 - i / 100, -2.0],
                "prediction": _choices(i)[0 if is_correct else 1],
                "predicted_indices": [0 if is_correct else 1],
                "correct": is_correct,
                "tie": False,
                "flags": "boundary" if i == 9 else None,
            }
        )
        scores += [score_row(f"i{i}", f"choice:{c}", len(prompt_of(i)), [1, 5], [0.5, 1.5 + c]) for c in range(2)]
    write_task_results(directory, OPTIONS, rows)
    write_artifact(directory / "scores" / f"{OPTIONS}.parquet", SCORES, scores, {})


def _write_sentences(directory: Path, model_index: int) -> None:
    rows, scores = [], []
    for i in range(4):
        text = _sentence(i)
        rows.append(task_row(f"s{i}", text, None, {"surprisal_token": 2.0 + i + model_index, "label": float(i % 2)}))
        scores.append(score_row(f"s{i}", "sentence", 0, [3, len(text) - 3], [4.5, 1.0 + i]))
    write_task_results(directory, SENTENCES, rows)
    write_artifact(directory / "scores" / f"{SENTENCES}.parquet", SCORES, scores, {})


def _write_generations(directory: Path, model_index: int) -> None:
    rows, generations = [], []
    for i in range(3):
        rows.append(
            task_row(f"w{i}", f"Питање {i}:", None, {"chrf": 10.0 * i})
            | {"prediction": f"<i>одговор</i> {model_index}"}
        )
        rendered = f"<|user|>\nПитање {i}:<|end|>"
        generations.append(
            {
                "request_id": f"w{i}",
                "item_id": f"w{i}",
                "role": "response",
                "raw_output": "<i>одговор</i> \n more",
                "output": f"<i>одговор</i> {model_index}",
                "finish_reason": "stop",
                "n_tokens": 4,
                "rendered": rendered if model_index == 0 else None,
            }
        )
    if model_index == 1:  # the first item has reasoning, and a second sample that ends within it
        generations[0] |= {"reasoning": "<b>Да</b> видимо.", "think_state": "closed", "n_reasoning_tokens": 7}
        second = {"role": "response:0@1", "output": "", "think_state": "unclosed", "n_reasoning_tokens": 9}
        generations.append(generations[0] | second)
    language = {"answered": {"sr": 2}, "blocks": {"Latin script": 1, "sr": 1}, "gold": {"sr": 3}, "undecided": 7}
    language = {"missing": "not installed"} if model_index else language
    write_task_results(directory, GENERATION, rows, language=language)
    write_artifact(directory / "generations" / f"{GENERATION}.parquet", GENERATIONS, generations, {})


def task_row(item: str, prompt: str, category: str | None, values: dict) -> dict:
    return {"item_id": item, "category": category, "prompt": prompt, "choices": [], "gold": [], "metrics": values}


def write_task_results(directory: Path, evaluation: str, rows: list[dict], **more) -> None:
    dataset = {
        "task": evaluation.split(".")[0],
        "language": evaluation.split(".")[1],
        "source": {"kind": "samples", "directory": "<b>set</b>", "sha256": "f" * 64, "split": "test"},
        "rows": {"read": len(rows), "evaluated": len(rows), "dropped": {}, "repaired": {}},
    }
    inference = {
        "engine": {"strategy": "tree", "strategy_requested": "auto", "fallback": []},
        "model": {"dtype": "float32", "device": "cpu", "remote_code": True, "torch": "2", "transformers": "5"},
        "counters": {"requests": len(rows), "tokens_computed": 12345, "seconds": 1.5},
    }
    metadata = {"dataset": dataset, "inference": inference, "items": len(rows), "flags": {"boundary": 1}, "skipped": {}}
    write_artifact(directory / "tasks" / f"{evaluation}.parquet", TASK_RESULTS, rows, metadata | more)


def _metric_rows(model: str, model_index: int) -> list[dict]:
    share = sum(correct(model_index, i) for i in range(N)) / N
    common = {
        "model": model,
        "n_flagged": 1,
        "n_ties": 0,
        "headline": True,
        "category": "",
        "metric_group": "surprisal",
    }
    accuracy = {
        "metric": "accuracy",
        "unit": "share",
        "chance_level": 0.5,
        "higher_is_better": True,
        "signature": "accuracy|v",
    }
    accuracy_rows = [
        common | accuracy | {"value": share, "ci_low": share - 0.05, "ci_high": share + 0.05, "n": N},
        *(
            common | accuracy | {"category": name, "value": share, "ci_low": 0.1, "ci_high": 0.9, "n": N // 2}
            for name in ("even", "odd")
        ),
    ]
    accuracy_rows = [row | setting_of(OPTIONS) | {"evaluation": OPTIONS} for row in accuracy_rows]
    auc = accuracy | {"metric": "auc", "value": 0.5, "ci_low": 0.2, "ci_high": 0.8, "n": 4}
    chrf = {"metric": "chrf", "unit": "score", "value": 10.0 + model_index, "n": 3, "higher_is_better": True}
    chrf |= {"ci_low": 8.0 + model_index, "ci_high": 12.0 + model_index}
    return [
        *accuracy_rows,
        common | auc | setting_of(SENTENCES) | {"evaluation": SENTENCES},
        common | chrf | setting_of(GENERATION) | {"evaluation": GENERATION},
    ]


def _write_comparison(results: Path) -> Path:
    """Write a comparison on OPTIONS in which the third model is the best, and the second shares its rank."""
    setting = {"evaluation": OPTIONS, **setting_of(OPTIONS), "metric": "accuracy"}
    row = setting | {
        "baseline": MODELS[0],
        "candidate": MODELS[1],
        "category": "",
        "unit": "share",
        "higher_is_better": True,
        "headline": True,
        "n": N,
        "n_baseline": N,
        "n_candidate": N,
        "baseline_value": 0.5,
        "candidate_value": 0.66,
        "difference": 0.16,
        "ci_low": 0.1,
        "ci_high": 0.2,
        "p_value": 0.0001,
        "p_holm": 0.0002,
        "n_tests": 2,
        "significant": True,
        "better": "candidate",
        "test": "exact McNemar, mid-p",
        "both_correct": 100,
        "both_incorrect": 157,
        "baseline_only_correct": 1,
        "candidate_only_correct": 2,
    }
    same = row | setting_of(SENTENCES) | {"evaluation": SENTENCES, "metric": "auc", "n": 4, "both_correct": None}
    same |= {"difference": 0.0, "ci_low": 0.0, "ci_high": 0.0, "p_value": 1.0, "p_holm": 1.0, "candidate_value": 0.5}
    same |= {"significant": False, "better": None, "test": "paired bootstrap"}
    write_artifact(results / "summary" / "comparisons.parquet", COMPARISONS, [row, same], {})
    ranking_values = zip(MODELS, (False, True, True), (3, 1, 1), (-0.25, -0.08, 0.0), strict=True)
    best = {"best": MODELS[2]}
    rankings = [
        setting
        | best
        | {"model": m, "in_best_group": s, "rank": p, "difference": d}
        | {"compared_with": list(MODELS), "worse_than": [] if s else [MODELS[2]]}
        for m, s, p, d in ranking_values
    ]
    write_artifact(results / "summary" / "rankings.parquet", RANKINGS, rankings, {})
    overall = [
        {"model": m, "scope": scope, "n_evaluations": 2, "n_excluded": 1, "mean": 0.3 - i / 10, "rank": i + 1}
        for i, m in enumerate(MODELS)
        for scope in ("all", "gl")
    ]
    write_artifact(results / "summary" / "overall.parquet", OVERALL, overall, {})
    changes = [
        {
            "item_id": f"i{i}",
            "change": change,
            "margin_change": margin_change,
            "prompt": prompt_of(i),
            "choices": _choices(i),
            "gold": [0],
        }
        | {"evaluation": OPTIONS, "baseline_prediction": "wrong", "candidate_prediction": "right"}
        for i, change, margin_change in ((4, "regressed", 2.5), (2, "improved", 1.5), (8, "improved", 3.0))
    ]
    path = results / "comparisons" / "plain" / "changes.parquet"
    write_artifact(path, CHANGES, changes, {})
    return path


def task_tables(results: Path, models, evaluations) -> dict[str, dict]:
    """Return the results per item of each evaluation, by model."""
    return {
        model: {
            name: artifacts.read(results / model / "tasks" / f"{name}.parquet", TASK_RESULTS) for name in evaluations
        }
        for model in models
    }


def write_artifact(path: Path, kind, rows: list[dict], metadata_fields: dict) -> None:
    artifacts.write(path, kind, rows, {**metadata_fields, "fingerprint": "x"})
