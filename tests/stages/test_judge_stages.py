"""Judges from the config to the tables, in the stages of this process: local, served, interrupted, invalid."""

import os
import re
from pathlib import Path

import openpyxl
import pandas as pd
import pytest
import yaml
from support import llama, served, specs, stages, tiny
from support.stage_run import Run
from vernacular.config import load as config
from vernacular.config.directories import clear_unavailable
from vernacular.core import artifacts
from vernacular.core.errors import ConfigError
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.schema import METRICS, TASK_RESULTS
from vernacular.protocols.schema import REQUESTS

EVALUATION = "openbookqa.gl.generation.0shot"
ONE = {
    "template": "P: {prompt}\nR: {response}\nG: {reference}\n{scale}",
    "scale": {"boa": 1, "mala": 0},
    "instruction": "Remata así: {cue} X",
    "cue": "Resposta:",
}
PAIR = ONE | {"template": "{prompt}\n1: {first}\n2: {second}\n{scale}", "scale": {"1": 1, "2": 0, "0": 0.5}}
CHAT = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A run with two models and their judge, local and behind a server; it is the working directory of all tests."""
    directory = tmp_path_factory.mktemp("judges")
    previous = os.getcwd()
    os.chdir(directory)
    tiny.save("llama", "one")
    tiny.save("gpt2", "two")
    tiny.save("bert", "encoder")
    trained = served.trained_model()
    trained.model.save_pretrained("judge")
    trained.tokenizer.save_pretrained("judge")
    template, trained.tokenizer.chat_template = trained.tokenizer.chat_template, CHAT
    trained.model.save_pretrained("chat")
    trained.tokenizer.save_pretrained("chat")
    trained.tokenizer.chat_template = template
    for name, rubric in (("tone", ONE), ("pair", PAIR)):
        Path(name).mkdir()
        Path(name, "gl.yaml").write_text(yaml.safe_dump(rubric, sort_keys=False, allow_unicode=True), "utf-8")
    yield directory
    os.chdir(previous)


@pytest.fixture(scope="module")
def server(workspace):
    with served.Server(served.trained_model(), length=None, faults=lambda *_: Faults.answer()) as server:
        yield server


class Faults:
    """After `left` further answers, the server refuses all; None: it answers all."""

    left: int | None = None

    @classmethod
    def answer(cls) -> int | None:
        if cls.left is None:
            return None
        cls.left -= 1
        return None if cls.left >= 0 else 502


MODELS = {
    name: {"source": f"./{name}", "dtype": "float32", "device": "cpu"} for name in ("one", "two", "judge", "chat")
}
MODELS["chat"] |= {"gen_kwargs": {"max_gen_toks": 16}}
LABELS = {"model": "judge", "rubric": "./tone", "read": "log_probabilities", "models": ["one", "two"]}


def write(judges: dict, **changes) -> None:
    content = {
        "models": MODELS,
        "data": "samples",
        "evaluations": [{"task": "openbookqa", "languages": ["gl"], "protocols": ["generation"], "limit": 4}],
        "similarity": {"metrics": ["cosine"], "encoders": {"default": "./encoder"}},
    }
    Path("config.yaml").write_text(yaml.safe_dump(content | {"judges": judges} | changes, sort_keys=False))


def load(judges: dict, **changes) -> Run:
    write(judges, **changes)
    return Run(config.load(["config.yaml"]))


def values(judge: str, model: str = "one") -> dict[str, float]:
    """Return the value of a judge by item."""
    rows = artifacts.read(f"results/{model}/tasks/{EVALUATION}.parquet", TASK_RESULTS).to_pylist(
        maps_as_pydicts="strict"
    )
    names = {row["item_id"]: row["metrics"].get(f"judge_{judge}_unvalidated") for row in rows}
    return {item: value for item, value in names.items() if value is not None}


@pytest.fixture(scope="module")
def tables(workspace, server):
    """Run all stages; return the printed lines of the end of the run."""
    big = {"source": server.source, "model": server.name, "tokenizer": "./judge", "concurrency": 1}
    judges = {
        "local": LABELS,
        "remote": LABELS | {"model": "big"},
        "pair": LABELS | {"rubric": "./pair", "models": ["one"], "baseline": "two"},
        "text": {"model": "chat", "rubric": "./tone"},
        "base": {"model": "judge", "rubric": "./tone", "models": ["one", "judge"]},
        "own": LABELS | {"models": ["one", "two", "judge"]},
    }
    assert load(judges, models=MODELS | {"big": big}).run_all() == 0


@pytest.mark.slow
def test_served_and_local_judge_agree(tables):
    outputs = [f"results/judges/{judge}/one/scores/{EVALUATION}.parquet" for judge in ("local", "remote")]
    local, remote = (artifacts.read(path, SCORES).to_pylist() for path in outputs)
    assert [row["role"] for row in local] == ["choice:0", "choice:1"] * 4
    for row, other in zip(local, remote, strict=True):
        assert other["logprobs"] == pytest.approx(row["logprobs"], abs=1e-4)
    assert values("remote") == pytest.approx(values("local"), abs=1e-4)
    assert len(values("local")) == 4
    assert len(set(values("local").values())) > 1


@pytest.mark.slow
def test_values_are_marked_as_unvalidated_in_tables_workbooks_report_and_on_the_terminal(tables, capsys):
    results = pd.read_csv("results/summary/results.csv")
    rows = results[(results["metric"] == "judge_local_unvalidated") & results["category"].isna()]
    assert rows["model"].to_list() == ["one", "two"]
    assert rows["n"].to_list() == [4, 4]
    assert rows["value"].to_list() == pytest.approx(
        [pd.Series(values("local", name)).mean() for name in ("one", "two")]
    )
    assert rows["signature"].str.contains(r"\|judge:judge\|model:\w{8}\|rubric:tone.gl@\w{8}\|read:log_prob").all()
    assert rows["signature"].str.contains(r"\|data:samples@\w{12}\|limit:4\|").all()
    cells = {
        str(cell.value)
        for sheet in openpyxl.load_workbook("results/summary/leaderboard.xlsx")
        for row in sheet.iter_rows()
        for cell in row
    }
    assert any("Judge local (unvalidated)" in text for text in cells)
    assert not [text for text in cells if "judge_local" in text and "judge_local_unvalidated" not in text]
    report = b"".join(path.read_bytes() for path in Path("results/report").rglob("*.js*"))
    assert b"Judge local (unvalidated)" in report
    assert "Judge local (unvalidated)" in Path("results/summary/wide.csv").read_text("utf-8-sig")
    fields = {"results": "results/summary", "benchmarks": "benchmarks"}
    assert stages.run("print-results", **fields) == 0
    printed = capsys.readouterr().out
    assert "Judge local (unvalidated)" in printed
    assert "Unvalidated: values of judge local, judge own, judge pair, judge remote, judge text" in printed


@pytest.mark.slow
def test_models_that_are_not_judged_have_no_value_and_a_baseline_has_none_of_itself(tables):
    results = pd.read_csv("results/summary/results.csv")
    judged = results[results["metric"].str.fullmatch("judge_[a-z]+_unvalidated")].groupby("metric")["model"].agg(set)
    assert judged["judge_local_unvalidated"] == {"one", "two"}
    assert judged["judge_pair_unvalidated"] == {"one"}
    pair = results[(results["model"] == "one") & results["metric"].str.startswith("judge_pair_")]
    names = {"unvalidated", "first", "consistent", "tie", "mass"}
    assert set(pair["metric"].str.removeprefix("judge_pair_")) == names


@pytest.mark.slow
def test_parse_failures_unreviewed_rubrics_families_and_inapplicable_judges_are_noted(tables):
    notes = pd.read_csv("results/summary/notes.csv").query("kind == 'judge'").set_index("note")["models"]
    assert "judge local: the rubric tone.gl is not reviewed by a speaker" in notes
    assert notes["judge text: no verdict found on 4 of 4 items, which have no value"]
    unparsed = pd.read_csv("results/summary/results.csv").query("metric == 'judge_text_unparsed'")
    assert set(unparsed["value"]) == {1}
    reason = "judge base: not applicable: judge base asks in chats, and judge has no chat template"
    assert notes[reason] == "one, judge"
    family = next(text for text in notes.index if text.startswith("judge own is of the family of judge"))
    assert "Judge own (unvalidated): " in family
    assert "Exact match: " in family
    assert family.endswith(" points to the other models")


@pytest.mark.slow
def test_every_judged_text_is_in_the_requests_with_the_fingerprint_of_its_outputs(tables):
    path = f"results/judges/local/one/requests/{EVALUATION}.parquet"
    generations = Path(f"results/one/generations/{EVALUATION}.parquet")
    assert (
        artifacts.metadata(path, REQUESTS).options["outputs"]
        == artifacts.metadata(generations, GENERATIONS).fingerprint
    )
    outputs = {row["item_id"]: row["output"] for row in artifacts.read(generations, GENERATIONS).to_pylist()}
    rows = artifacts.read(path, REQUESTS).to_pylist()
    assert all(f"R: {outputs[row['item_id']]}\nG: " in row["text"] for row in rows)
    assert all(row["text"].endswith(("\nResposta: A", "\nResposta: B")) for row in rows)


@pytest.mark.slow
def test_judge_that_is_killed_has_its_reason_in_the_notes_and_resumes(tables, server, low_limits):
    low_limits("inference.server.client", FIRST_WAIT=0.001)
    big = {"source": server.source, "model": server.name, "tokenizer": "./judge", "concurrency": 1}
    rubric = ONE | {"template": "Another.\n" + ONE["template"]}
    Path("again").mkdir()
    Path("again", "gl.yaml").write_text(yaml.safe_dump(rubric, sort_keys=False, allow_unicode=True), "utf-8")
    judges = {"late": LABELS | {"model": "big", "rubric": "./again", "models": ["one"]}}
    run = load(judges, models=MODELS | {"big": big})
    requests = Path(f"results/judges/late/one/requests/{EVALUATION}.parquet")
    before = server.answered.total()
    Faults.left = 6  # some for the check of the server
    try:
        run.judge("late", "one")
    finally:
        Faults.left = None
    assert run("metrics", "one") == run("compare") == run("changes") == run("summary") == 0
    assert run("finish") == 1
    metadata = artifacts.metadata(f"results/one/tasks/{EVALUATION}.parquet", TASK_RESULTS)
    assert list(metadata.outcome.missing) == ["judge late"]
    n_first = server.answered.total() - before
    assert n_first > 0
    deleted = {
        str(path) for path in clear_unavailable(Path("resources"), Path("results"), {*run.config.models, EVALUATION})
    }
    assert f"results/one/tasks/{EVALUATION}.parquet" in deleted
    assert f"results/judges/late/one/scores/{EVALUATION}.parquet" in deleted
    assert "results/judges/late/one/inference_status/1of1.json" in deleted
    assert str(requests) not in deleted
    run.judge("late", "one")
    assert run("metrics", "one") == run("compare") == run("changes") == run("summary") == run("finish") == 0
    assert len(values("late")) == 4


@pytest.fixture
def llama_cpp():
    pytest.importorskip("xllamacpp", exc_type=ImportError)


@pytest.mark.slow
def test_labels_of_a_float32_judge_behind_llama_cpp_are_those_of_the_local_one(tables, llama_cpp, tmp_path):
    llama.write_gguf(served.trained_model(), tmp_path / "tiny.gguf")
    with llama.LlamaServer(tmp_path / "tiny.gguf", context=2048, float32=True) as server:
        cpp = {"source": server.source, "tokenizer": "./judge", "concurrency": 1}
        run = load({"cpp": LABELS | {"model": "cpp", "models": ["one"]}}, models=MODELS | {"cpp": cpp})
        assert run("server", "cpp") == 0
        run.judge("cpp", "one")
    paths = [f"results/judges/{judge}/one/scores/{EVALUATION}.parquet" for judge in ("local", "cpp")]
    local, remote = (artifacts.read(path, SCORES).to_pylist() for path in paths)
    for row, other in zip(local, remote, strict=True):
        assert (other["flags"], other["tokens"]) == (row["flags"], row["tokens"])
        assert other["logprobs"] == pytest.approx(row["logprobs"], abs=1e-4)


YES = {
    "template": "{prompt}\n\nResponse: {response}\n\nIs this response helpful? Reply with yes or no only.",
    "scale": {"Yes": 1, "No": 0},
    "parser": r"(?i)\b(yes|no)\b",
}


@pytest.mark.slow
@llama.needs_smollm
def test_smollm2_behind_llama_cpp_judges_in_words(tables, llama_cpp):
    Path("yes").mkdir()
    Path("yes", "en.yaml").write_text(yaml.safe_dump(YES, sort_keys=False))
    with llama.LlamaServer(llama.SMOLLM, context=2048) as server:
        smol = {"source": server.source, "tokenizer": llama.SMOLLM, "concurrency": 1}
        smol |= {"gen_kwargs": {"max_gen_toks": 12}}
        judge = {"model": "smol", "rubric": "./yes", "language": "en", "models": ["one"]}
        run = load({"smol": judge}, models=MODELS | {"smol": smol})
        assert run("server", "smol") == 0
        run.judge("smol", "one")
        assert run("metrics") == 0
    directory = Path("results/judges/smol/one/generations")
    texts = artifacts.read(directory / f"{EVALUATION}.parquet", GENERATIONS).to_pylist()
    assert all("<|im_start|>assistant" in row["rendered"] for row in texts)
    rows = artifacts.read(f"results/one/tasks/{EVALUATION}.parquet", TASK_RESULTS).to_pylist(maps_as_pydicts="strict")
    metrics = {row["item_id"]: row["metrics"] for row in rows}
    for row in texts:  # what the text says is the value, or it is counted
        words = re.findall(YES["parser"], row["output"])
        found = metrics[row["item_id"]]
        assert found["judge_smol_unparsed"] == (not words)
        assert found.get("judge_smol_unvalidated") == (YES["scale"][words[-1].capitalize()] if words else None)
    assert values("smol"), [row["output"] for row in texts]


INVALID = {
    "unknown model": ({"model": "on"}, '"on" is not a model of this config. Did you mean "one"?'),
    "unknown judged model": ({"models": ["tow"]}, '"tow" is not a model of this config. Did you mean "two"?'),
    "rubric that does not exist": ({"rubric": "corectness"}, 'not found: corectness. Did you mean "correctness"?'),
    "no rubric in the language": ({"language": "ka"}, 'no rubric in "ka" (available: gl)'),
    "baseline of one response": ({"baseline": "two", "models": ["one"]}, "the rubric has one response"),
    "no baseline of two": ({"rubric": "./pair"}, "the rubric compares two responses; name the model to compare with"),
    "baseline itself": ({"rubric": "./pair", "baseline": "one"}, '"one" cannot be compared with itself'),
    "task without texts": ({"tasks": ["cola"]}, 'no evaluation with generated texts of the task "cola"'),
    "adapter": ({"model": "tuned"}, 'expected a model without adapter, got "tuned"'),
    "reading": ({"read": "logprobs"}, 'unknown value "logprobs". Did you mean "log_probabilities"?'),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_judge_is_one_message_that_names_its_key(workspace, name):
    changes, expected = INVALID[name]
    models = MODELS | {"tuned": {"base": "one", "adapter": "./adapter"}}
    with pytest.raises(ConfigError) as raised:
        load({"tone": LABELS | changes}, models=models)
    assert expected in str(raised.value)
    assert "judges.tone." in str(raised.value)


@pytest.mark.parametrize("name", ["accuracy", "Tone", "my_judge"])
def test_name_of_a_judge_is_part_of_the_name_of_a_metric(workspace, name):
    with pytest.raises(
        ConfigError, match=f"judges.{name}: invalid name; expected a name of lower-case letters and digits"
    ):
        load({name: LABELS})


@pytest.mark.slow
def test_labels_of_speakers_take_the_mark_from_the_values_of_their_evaluation(tables):
    Path("labels.csv").write_text(
        f"evaluation,item_id,response_id,scale,label,annotator\n{EVALUATION},x,r1,correct,correct,ana\n", "utf-8"
    )
    run = load({"local": LABELS}, labels="labels.csv")
    assert run("metrics", "one") == 0
    rows = artifacts.read("results/one/metrics.parquet", METRICS).to_pylist()
    assert [row["value"] for row in rows if row["metric"] == "judge_local" and not row["category"]]
    assert not any("unvalidated" in row["metric"] for row in rows)
    metadata = artifacts.metadata(f"results/one/tasks/{EVALUATION}.parquet", TASK_RESULTS)
    assert metadata.judges == ["judge local: the rubric tone.gl is not reviewed by a speaker"]


def test_judge_changes_no_spec_of_others_and_rubrics_count_by_content(workspace):
    plain = load({}).config
    entry = LABELS | {"models": ["one"]}
    judged = load({"tone": entry}).config
    for name in MODELS:
        assert specs.model_spec(judged, name) == specs.model_spec(plain, name)
        assert (specs.metrics_spec(judged, name) == specs.metrics_spec(plain, name)) == (name != "one")
        assert specs.inference_spec(judged, [name]) == specs.inference_spec(plain, [name])
    for spec in (specs.items_spec, specs.requests_spec, specs.similarity_spec, specs.comparisons_spec):
        assert spec(judged) == spec(plain)
    original = specs.judge_requests_spec(judged, "tone", "one")
    path = Path("tone", "gl.yaml")
    content = path.read_text("utf-8")
    try:
        path.write_text(f"# a comment\n{content}", "utf-8")
        assert specs.judge_requests_spec(load({"tone": entry}).config, "tone", "one") == original
        path.write_text(content.replace("boa", "moi boa"), "utf-8")
        changed = load({"tone": entry}).config
        assert specs.judge_requests_spec(changed, "tone", "one") != original
        assert specs.metrics_spec(changed, "one") != specs.metrics_spec(judged, "one")
    finally:
        path.write_text(content, "utf-8")
