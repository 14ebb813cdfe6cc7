"""Command `metrics` computes bits and token counts from stored scores: no model is loaded, and no tokenizer."""

import importlib.util
import math
import os
import subprocess
import sys

import pytest
from support import stages
from support.sample_items import item
from vernacular.core import artifacts
from vernacular.core.metadata import Profile
from vernacular.core.model_record import write_record
from vernacular.core.paths import WORKFLOW
from vernacular.data.schema import ITEMS
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.schema import METRICS, SIMILARITIES, TASK_RESULTS, TOKENS
from vernacular.protocols.build import build
from vernacular.protocols.schema import REQUESTS

EVALUATION = "cola.gl.acceptability.0shot"
SENTENCES = ["O corazón", "Ela canta ben", "Eles canta ben"]
BLOCK_ENGINES = "import sys; sys.modules |= dict.fromkeys(('torch', 'transformers', 'tokenizers', 'vllm', 'peft'))"


def write_run(directory, kind, evaluation=EVALUATION):
    """Write the artifacts of a finished run, up to its scores, as the commands before `metrics` do."""
    items = [item(f"i{n}", context=text, extra={"label": str(int(n < 2))}) for n, text in enumerate(SENTENCES)]
    task = {"task": "cola", "item_type": "sentence", "protocols": ["acceptability"]}
    settings = {"language": "gl", "protocol": "acceptability", "shots": 0, "seed": 0, "style": "default"}
    requests, metadata = build(items, task, **settings, options={})
    source = {"fingerprint": "items", "source": {"kind": "file", "sha256": "5a" * 32}}
    artifacts.write(directory / "items" / "cola.gl.parquet", ITEMS, items, source)
    artifacts.write(
        directory / "requests" / f"{evaluation}.parquet",
        REQUESTS,
        requests,
        metadata | {"items": source, "fingerprint": "r"},
    )
    scores = [
        {
            "request_id": request["request_id"], "item_id": request["item_id"], "role": request["role"],
            "tokens": ["a", "b"], "offsets": [[0, 2], [2, len(request["text"])]], "logprobs": [-3.0, -5.0],
            "is_greedy": [False, True], "n_prompt_tokens": 1,
        }
        for request in requests
    ]  # fmt: skip
    inference = {"requests": "r", "model": {"fingerprint": "m", "kind": kind}, "fingerprint": "s"}
    artifacts.write(directory / "mine" / "scores" / f"{evaluation}.parquet", SCORES, scores, inference)
    write_record(directory / "mine.json", {"name": "mine", "fingerprint": "m"})
    return settings | {"prompt": "default"}


@pytest.fixture(scope="module", params=["causal", "masked"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def results(tmp_path_factory, kind):
    tmp_path = tmp_path_factory.mktemp(kind)
    settings = write_run(tmp_path, kind)
    spec = {"model": "mine", "evaluations": {EVALUATION: {"items_stem": "cola.gl", "task": "cola"} | settings}}
    files = {"model": "mine.json", "items_dir": "items", "requests_dir": "requests", "out": "mine"}
    fields = stages.text("metrics", spec=spec, **{name: tmp_path / path for name, path in files.items()})
    code = f"{BLOCK_ENGINES}; from vernacular.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = os.environ | {"PYTHONPATH": str(WORKFLOW)}
    run = subprocess.run(
        [sys.executable, "-c", code, "metrics"], input=fields, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return tmp_path / "mine"


def test_bits_of_a_finished_run_need_no_model(results, kind):
    rows = {row["metric"]: row for row in artifacts.read(results / "metrics.parquet", METRICS).to_pylist()}
    name = "pseudo_bits_per_byte" if kind == "masked" else "bits_per_byte"
    bits, n_bytes = 16 / math.log(2), len("O corazónEla canta ben".encode())
    assert rows[name]["value"] == pytest.approx(bits / n_bytes, rel=1e-12), "the two acceptable sentences"
    assert rows[name]["n"] == 2
    assert not any("bits" in metric and metric.startswith("pseudo") != (kind == "masked") for metric in rows)
    values = [
        dict(row["metrics"])
        for row in artifacts.read(results / "tasks" / f"{EVALUATION}.parquet", TASK_RESULTS).to_pylist()
    ]
    assert values[0][name.removesuffix("_per_byte")] == pytest.approx(11.541560, abs=5e-7)


def test_a_masked_or_causal_run_is_diagnosed(results, kind):
    """Three sentences without a choice: nothing explains the value, and nothing is generated."""
    for path, schema in (
        (results / "tasks" / f"{EVALUATION}.parquet", TASK_RESULTS),
        (results / "metrics.parquet", METRICS),
    ):
        metadata = artifacts.metadata(path, schema)
        metadata = metadata.evaluations[EVALUATION] if schema is METRICS else metadata
        assert metadata.diagnoses == []
        assert metadata.profile == Profile()
        assert metadata.language is None


def test_token_counts_of_a_finished_run_need_no_tokenizer(results):
    tokens = artifacts.read(results / "tokens.parquet", TOKENS).to_pylist()
    assert [row["item_id"] for row in tokens] == ["i0", "i1", "i2"]
    assert [row["tokens"] for row in tokens] == [2, 2, 2]
    assert [row["split_words"] for row in tokens] == [0, 1, 1], "O | corazón, but El|a"
    assert tokens[0]["bits"] == pytest.approx(11.541560, abs=5e-7)
    assert artifacts.metadata(results / "tokens.parquet")["model"] == "mine"


@pytest.mark.parametrize("n_items", [1, 2])
def test_metrics_are_the_same_in_parts_of_an_evaluation(tmp_path, low_limits, n_items):
    contents = []
    for size in (2_000, n_items):
        settings = write_run(tmp_path / str(size), "causal")
        spec = {"model": "mine", "evaluations": {EVALUATION: {"items_stem": "cola.gl", "task": "cola"} | settings}}
        directory = tmp_path / str(size)
        files = {"model": "mine.json", "items_dir": "items", "requests_dir": "requests", "out": "mine"}
        paths = {name: directory / path for name, path in files.items()}
        low_limits("stages.metrics", ITEMS_AT_A_TIME=size)
        assert stages.run("metrics", spec=spec, **paths) == 0
        files = {"metrics": METRICS, "tokens": TOKENS, f"tasks/{EVALUATION}": TASK_RESULTS}
        paths = {directory / "mine" / f"{name}.parquet": kind for name, kind in files.items()}
        contents.append(
            [(artifacts.read(path, kind).to_pylist(), artifacts.metadata(path)) for path, kind in paths.items()]
        )
    assert repr(contents[0]) == repr(contents[1])
    assert [len(rows) for rows, _ in contents[0]][1:] == [3, 3]


def test_evaluations_with_the_same_inputs_are_kept(tmp_path):
    """Their values are those of a run that computes everything, and whatever they depend on computes them again."""
    added = EVALUATION.replace("0shot", "1shot")
    contents, written = [], []

    def run(directory, *names, **changes):
        spec = {"items_stem": "cola.gl", "task": "cola"} | settings
        spec = {"model": "mine", "evaluations": dict.fromkeys(names, spec)} | changes
        files = {"model": "mine.json", "items_dir": "items", "requests_dir": "requests", "out": "mine"}
        assert stages.run("metrics", spec=spec, **{name: directory / path for name, path in files.items()}) == 0
        written.append((directory / "mine" / "tasks" / f"{EVALUATION}.parquet").stat().st_ino)

    for name in ("once", "again"):
        settings = write_run(tmp_path / name, "causal")
        write_run(tmp_path / name, "causal", added)
        if name == "again":
            run(tmp_path / name, EVALUATION)
        run(tmp_path / name, EVALUATION, added)
        files = {f"tasks/{EVALUATION}": TASK_RESULTS, "metrics": METRICS, "tokens": TOKENS}
        paths = {tmp_path / name / "mine" / f"{file}.parquet": kind for file, kind in files.items()}
        contents.append([(artifacts.read(path, kind), artifacts.metadata(path)) for path, kind in paths.items()])
    assert repr(contents[0]) == repr(contents[1])
    assert [one.equals(two) for (one, _), (two, _) in zip(*contents, strict=True)] == [True] * 3
    _, first, second = written
    assert first == second
    run(tmp_path / "again", EVALUATION, added, refusals={"ca": ["No puc"]})
    assert written[-1] == first
    record = {"name": "mine", "fingerprint": "m", "revision": "another"}
    for change in (
        lambda: run(tmp_path / "again", EVALUATION, added, refusals={"gl": ["Non podo"]}),
        lambda: run(tmp_path / "again", EVALUATION, added, code="another"),
        lambda: run(tmp_path / "again", EVALUATION, added, libraries={"heliport": "1.0"}),
        lambda: (write_record(tmp_path / "again" / "mine.json", record), run(tmp_path / "again", EVALUATION)),
        lambda: ((tmp_path / "again/mine/tokens.parquet").write_text("damaged"), run(tmp_path / "again", EVALUATION)),
    ):
        change()
        assert written[-1] != written[-2]


def test_generated_answers_are_diagnosed_and_have_a_language(tmp_path, monkeypatch):
    """Forty questions, to three of four of which "si" is correct; the model answers "non"."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # as if no identifier were installed
    evaluation, n = "mine.gl.generation.0shot", 40
    items = [
        item(f"q{i:02}", question=f"É certo {i}?", choices=["si", "non"], gold=[int(i % 4 == 0)]) for i in range(n)
    ]
    task = {"task": "mine", "item_type": "question", "protocols": ["generation"]}
    settings = {"language": "gl", "protocol": "generation", "shots": 0, "seed": 0, "style": "default"}
    requests, metadata = build(items, task, **settings, options={})
    source = {"fingerprint": "items", "source": {"kind": "file", "sha256": "5a" * 32}}
    artifacts.write(tmp_path / "items" / "mine.gl.parquet", ITEMS, items, source)
    path = tmp_path / "requests" / f"{evaluation}.parquet"
    artifacts.write(path, REQUESTS, requests, metadata | {"items": source, "fingerprint": "r"})
    outputs = [
        {name: row[name] for name in ("request_id", "item_id", "role")}
        | {"raw_output": "non", "output": "non", "finish_reason": "stop"}
        for row in requests
    ]
    inference = {"requests": "r", "model": {"fingerprint": "m", "kind": "causal"}, "fingerprint": "g"}
    artifacts.write(tmp_path / "mine" / "generations" / f"{evaluation}.parquet", GENERATIONS, outputs, inference)
    similar = [{"item_id": row["item_id"], "metric": "cosine", "similarities": [0.1, 0.9]} for row in items]
    path = tmp_path / "mine" / "similarity" / f"{evaluation}.parquet"
    artifacts.write(path, SIMILARITIES, similar, {"evaluation": evaluation, "generations": "g", "fingerprint": "s"})
    write_record(tmp_path / "mine.json", {"name": "mine", "fingerprint": "m"})
    measured = {"items_stem": "mine.gl", "task": "mine", "prompt": "default"} | settings
    files = {"model": "mine.json", "items_dir": "items", "requests_dir": "requests", "out": "mine"}
    paths = {name: tmp_path / path for name, path in files.items()}
    assert stages.run("metrics", spec={"model": "mine", "evaluations": {evaluation: measured}}, **paths) == 0
    metadata = artifacts.metadata(tmp_path / "mine" / "metrics.parquet", METRICS).evaluations[evaluation]
    assert [(each.code, each.severity) for each in metadata.diagnoses][:2] == [
        ("constant", "failure"),
        ("below_chance", "warning"),
    ]
    assert metadata.diagnoses[0].sentence.startswith("40 of 40 answers are “non” (gold: 10): accuracy = (10 correct")
    assert [(each.label, each.predicted, each.gold) for each in metadata.profile.labels] == [
        ("si", 0, 30),
        ("non", 40, 10),
    ]
    assert "heliport is not installed" in metadata.language.missing
