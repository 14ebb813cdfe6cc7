"""Values for the pages of models on the Hub, read back by huggingface_hub; what is not written, and why."""

import pandas as pd
import pytest
import yaml
from huggingface_hub import EvalResultEntry, parse_eval_result_entries
from vernacular.core.errors import ConfigError
from vernacular.core.metadata import MetricsMetadata, ModelInfo, OutputsMetadata, ResultsMetadata
from vernacular.data.tasks import load_task
from vernacular.exchange.eval_results import write_eval_results
from vernacular.metrics.schema import RESULTS

COMMIT, DATA = "c" * 40, "d" * 40
BENCHMARK = {"dataset": "org/rivers", "task_id": "gl", "metric": "accuracy"}
SOURCE = {"task": "rivers", "language": "gl", "limit": None, "from": "org/rivers", "items": 50}
EVALUATION = "rivers.gl.letters.0shot"
LOADED = {
    "tiny": {"dtype": "bfloat16"},
    "tiny-4bit": {"dtype": "bfloat16", "quantization": {"load_in_4bit": True}},
    "tiny-gptq": {"dtype": "float32", "quantization": {"quant_method": "gptq"}},
    "tiny-served": None,
}
ROW = dict.fromkeys(RESULTS.schema.names) | {
    "model": "tiny",
    "evaluation": EVALUATION,
    "task": "rivers",
    "language": "gl",
    "protocol": "letters",
    "shots": 0,
    "style": "default",
    "prompt": "default",
    "category": "",
    "metric": "accuracy",
    "unit": "share",
    "value": 0.64,
    "ci_low": 0.5,
    "ci_high": 0.76,
    "n": 50,
    "model_revision": COMMIT,
    "dataset_revision": DATA,
}


def write(tmp_path, source=SOURCE, repositories=None, **changes):
    repositories = {"tiny": "org/tiny"} if repositories is None else repositories
    return write_rows(tmp_path, [ROW | changes], repositories, source)


def write_rows(tmp_path, rows, repositories, source=SOURCE):
    metrics = []
    for model, loaded in LOADED.items():
        outputs = OutputsMetadata(model=ModelInfo(**loaded) if loaded else None)
        of = {EVALUATION: ResultsMetadata(evaluation=EVALUATION, inference=outputs)}
        metrics.append(MetricsMetadata(model=model, evaluations=of))
    return write_eval_results(tmp_path, pd.DataFrame(rows), repositories, [source], metrics, {EVALUATION: BENCHMARK})


def test_entry_is_read_back_equal(tmp_path):
    written, left_out = write(tmp_path)
    assert left_out == []
    assert written == {"org/tiny": tmp_path / "org/tiny"}
    text = (tmp_path / "org/tiny/.eval_results" / f"{EVALUATION}.yaml").read_text()
    [entry] = parse_eval_result_entries(yaml.safe_load(text))
    assert entry == EvalResultEntry("org/rivers", "gl", 0.64, dataset_revision=DATA, notes=entry.notes)
    for part in ("letters", "0-shot", "n = 50", "95% interval 0.5 to 0.76", COMMIT, "bfloat16"):
        assert part in entry.notes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"repositories": {}}, "the model is not on the Hub"),
        ({"model_revision": "0123456789ab"}, "the model is not on the Hub"),
        ({"dataset_revision": "samples 0123456789ab"}, "samples of the package"),
        ({"source": SOURCE | {"limit": 50}}, "a limit"),
        ({"n": 49}, "a limit, or items without a value"),
        ({"source": SOURCE | {"from": "other/rivers"}}, "not from org/rivers"),
        ({"value": None}, "no value"),
    ],
)
def test_what_is_not_of_the_benchmark_is_not_written(tmp_path, changes, reason):
    written, left_out = write(tmp_path, **changes)
    assert (written, list(tmp_path.rglob("*.yaml"))) == ({}, [])
    assert left_out[0].startswith(f"tiny, {EVALUATION}: {reason}")


def test_a_second_model_of_a_repository_is_not_written_over_the_first(tmp_path):
    rows = [ROW, ROW | {"model": "tiny-4bit", "value": 0.5}]
    written, left_out = write_rows(tmp_path, rows, dict.fromkeys(LOADED, "org/tiny"))
    assert "value: 0.64" in (written["org/tiny"] / ".eval_results" / f"{EVALUATION}.yaml").read_text()
    assert left_out == [f"tiny-4bit, {EVALUATION}: org/tiny has the value of the model tiny"]


@pytest.mark.parametrize(
    ("model", "precision"), [("tiny-4bit", "4bit"), ("tiny-gptq", "gptq"), ("tiny-served", "unknown precision")]
)
def test_precision_of_a_quantized_model(tmp_path, model, precision):
    written, _ = write_rows(tmp_path, [ROW | {"model": model}], {model: "org/tiny"})
    text = yaml.safe_load((written["org/tiny"] / ".eval_results" / f"{EVALUATION}.yaml").read_text())
    assert f", {precision}, model revision" in text[0]["notes"]


TASK = {
    "task": "rivers",
    "protocols": ["letters"],
    "item_type": "question",
    "columns": {"question": "q", "choices": "options", "gold": "answer", "gold_format": "letter"},
    "source": {"hub": "org/rivers", "config": "{code}", "split": "test"},
    "benchmark": {"dataset": "org/rivers", "task_id": "{code}", "protocol": "letters", "metric": "accuracy"},
    "languages": {"gl": "glg"},
}


def test_benchmark_of_a_language(tmp_path):
    path = tmp_path / "rivers.yaml"
    path.write_text(yaml.safe_dump(TASK))
    assert load_task(path)["languages"]["gl"]["benchmark"]["task_id"] == "glg"
    path.write_text(yaml.safe_dump(TASK | {"benchmark": {"dataset": "org/rivers", "task": "gl"}}))
    with pytest.raises(ConfigError, match="task_id"):
        load_task(path)
