"""What each rule's key and the store's key cover: every component, so that dropping one fails here."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from support import tiny
from vernacular.config import dependencies as specs
from vernacular.config import load as config
from vernacular.core.fingerprint import file_fingerprint
from vernacular.core.paths import WORKFLOW
from vernacular.core.validate import schema
from vernacular.inference.job import work
from vernacular.inference.job.work import engine_version, evaluation_key
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.protocols import prompts

REQUESTS = pa.table({"item_id": ["a", "b"], "role": ["choice:0", "choice:1"], "request_id": ["r1", "r2"]})
TASK = {
    "task": "mine",
    "item_type": "question",
    "protocols": ["letters", "generation"],
    "columns": {"question": "q", "choices": "o", "gold": "a", "gold_format": "index"},
    "languages": {"gl": {"source": {"file": "rows.jsonl", "few_shot": "shots.jsonl"}}},
}
CONFIG = {
    "models": {
        "base": {"source": "./base", "dtype": "bfloat16", "bos": "never", "max_batch_tokens": 64, "shards": 2},
        "tuned": {"base": "base", "adapter": "./tuned"},
    },
    "tasks": ["."],
    "evaluations": [
        {"task": "mine", "protocols": ["letters"], "shots": 2, "seeds": 3, "option_rotations": 2, "limit": 5},
        {"task": "mine", "protocols": ["generation"], "styles": ["default", "simil-eval"]},
        {"task": "serbian_cloze", "data": "samples"},
    ],
    "similarity": {"encoders": {"default": {"source": "./encoder", "layer": 3}}, "idf": True},
    "external_results": {"old": {"path": "./old.csv"}},
    "comparisons": [{"baseline": "base", "candidate": "tuned"}],
}
LETTERS, GENERATION = "mine.gl.letters.2shot.seed3", "mine.gl.generation.0shot"
CLOZE = "serbian_cloze.sr.cloze.0shot"


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A function that writes the config and what it names, and reads it."""
    monkeypatch.chdir(tmp_path)
    for name, kind in (("base", "llama"), ("encoder", "bert"), ("tuned", "llama")):
        tiny.save(kind, tmp_path / name)
    Path("rows.jsonl").write_text('{"q": "?", "o": ["a", "b"], "a": 0}\n')
    Path("shots.jsonl").write_text('{"q": "??", "o": ["a", "b"], "a": 0}\n')
    Path("old.csv").write_text("item_id,score\n1,2\n")

    def read(edit=lambda c, task: None) -> config.Config:
        given, task = json.loads(json.dumps([CONFIG, TASK]))
        edit(given, task)
        Path("mine.yaml").write_text(yaml.safe_dump(task))
        Path("config.yaml").write_text(yaml.safe_dump(given))
        specs._content.cache_clear()
        return config.load(["config.yaml"])

    return read


def shown(found: config.Config, evaluation: str) -> dict:
    return specs.of_items(found)["items"][found.evaluations[evaluation].items]


# ----- each spec, in full -------------------------------------------------------------------------------------------


def test_items_depend_on_their_task_in_their_language_their_files_and_their_limit(made):
    found = made()
    spec = shown(found, LETTERS)
    assert set(spec) == {"task", "language", "data", "limit", "files"}
    assert (spec["language"], spec["data"], spec["limit"]) == ("gl", "hub", 5)
    assert spec["task"] == {**found.tasks["mine"], "folder": "."}
    assert spec["files"] == {name: file_fingerprint(name) for name in ("rows.jsonl", "shots.jsonl")}
    samples = shown(found, CLOZE)
    assert samples["data"] == "samples"
    assert list(samples["task"]["languages"]) == ["sr"]
    assert {Path(file).resolve().parent for file in samples["files"]} == {WORKFLOW / "samples" / "serbian_cloze" / "sr"}


def test_items_do_not_depend_on_other_languages_nor_on_where_the_task_file_is(made):
    def edit(given, task):
        task["languages"]["es"] = task["languages"]["gl"]
        given["tasks"] = [os.getcwd()]

    alone, among_others = shown(made(), LETTERS), shown(made(edit), LETTERS)
    assert among_others == alone


def test_requests_depend_on_their_evaluation_and_the_lines_of_its_prompts(made):
    found = made()
    assert set(specs.of_requests(found)["evaluations"]) == set(found.evaluations)
    assert specs.of_requests(found)["evaluations"][LETTERS] == {
        "evaluation": LETTERS,
        "items": "mine.gl.limit5",
        "task": {"task": "mine", "item_type": "question", "protocols": ["letters", "generation"]},
        "language": "gl",
        "protocol": "letters",
        "shots": 2,
        "seed": 3,
        "style": "default",
        "options": {"option_rotations": 2},
        "prompts": yaml.safe_load((WORKFLOW / "prompts" / "gl.yaml").read_text("utf-8")),
    }


def test_models_depend_on_where_they_come_from_and_on_what_they_are_allowed(made):
    found = made()
    base, tuned = specs.of_model(found, "base"), specs.of_model(found, "tuned")
    assert set(base) == {"name", "source", "kind", "allow_pickle", "trust_remote_code", "files"}
    assert (base["name"], base["source"], base["kind"]) == ("base", "./base", "auto")
    assert set(tuned) == {"name", "adapter", "allow_pickle", "allow_base_mismatch", "files"}
    encoder = specs.of_encoder(found, "encoder.layer3")
    assert set(encoder) == {"name", "source", "layer", "files"}
    assert (encoder["name"], encoder["source"], encoder["layer"]) == ("encoder.layer3", "./encoder", 3)


def test_every_setting_of_a_model_decides_its_files_its_outputs_or_its_job(made):
    settings = set(schema(WORKFLOW / "schemas" / "config.schema.yaml")["$defs"]["model"]["properties"])
    found = made()
    in_keys = {*specs.of_model(found, "base"), *specs.of_model(found, "tuned")}
    in_keys |= set(specs.of_inference(found, ["base"])["models"]["base"])
    how_it_runs = {"shards", "gpus", "base"}  # in the names of files, in resources, and an input of the rule
    assert settings - in_keys == how_it_runs


def test_inference_depends_on_settings_engines_and_libraries(made, monkeypatch):
    monkeypatch.setattr(work, "version_of", lambda name: f"{name}-1")
    engine_version.cache_clear()
    found = made()
    spec = specs.of_inference(found, ["base", "tuned"])
    assert spec["engines"] == {"scores": engine_version(SCORES), "generations": engine_version(GENERATIONS)}
    assert set(spec) == {"models", "engines"}
    base = spec["models"]["base"]
    assert (base["dtype"], base["bos"], base["max_batch_tokens"], base["libraries"]) == ("bfloat16", "never", 64, [])
    assert spec["models"]["tuned"]["libraries"] == ["peft peft-1"]
    vllm = made(
        lambda c, task: (
            c["models"].pop("tuned") and c.pop("comparisons") and c["models"]["base"].update(generation_engine="vllm")
        )
    )
    assert specs.of_inference(vllm, ["base"])["models"]["base"]["libraries"] == ["vllm vllm-1"]
    engine_version.cache_clear()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("none", None), ("8bit", {"load_in_8bit": True}), ("4bit", {"load_in_4bit": True})],
)
def test_inference_depends_on_the_quantization_as_transformers_takes_it(made, setting, expected):
    found = made(lambda c, task: c["models"]["base"].update(quantization=setting))
    assert specs.of_inference(found, ["base"])["models"]["base"]["quantization"] == expected


def test_similarity_depends_on_metrics_their_options_and_encoders(made):
    found = specs.of_similarity(made())["evaluations"]
    assert set(found) == {GENERATION, f"{GENERATION}.simil-eval"}
    encoders = dict.fromkeys(["cosine", "moverscore", "bertscore"], "encoder.layer3")
    assert found[GENERATION] == {
        "items": "mine.gl",
        "language": "gl",
        "style": "default",
        "metrics": [
            {"metric": "cosine"},
            {"metric": "moverscore", "idf": True},
            {"metric": "bertscore", "idf": True},
        ],
        "encoders": encoders,
    }
    legacy = found[f"{GENERATION}.simil-eval"]
    assert legacy["style"] == "simil-eval"
    assert legacy["metrics"][1:] == [
        {"metric": "moverscore", "variant": "simil-eval"},
        {"metric": "bertscore", "idf": True},
    ]


def test_metrics_comparisons_and_tables_depend_on_what_they_show(made):
    found = made()
    names = ["mine.gl.letters.2shot.seed3", GENERATION, f"{GENERATION}.simil-eval", CLOZE]
    letters = {
        "items": "mine.gl.limit5",
        "task": "mine",
        "language": "gl",
        "protocol": "letters",
        "shots": 2,
        "seed": 3,
    }
    letters["style"] = "default"
    metrics = specs.of_metrics(found, "base")
    assert (metrics["model"], list(metrics["evaluations"])) == ("base", names)
    assert metrics["evaluations"][LETTERS] == letters
    compared = specs.of_comparisons(found)
    assert compared == {
        "models": ["base", "tuned"],
        "pairs": [("base", "tuned")],
        "external_results": {"old": {"path": "./old.csv", "files": {".": file_fingerprint("old.csv")}}},
        "evaluations": metrics["evaluations"],
    }
    assert specs.of_export(found) == {
        "evaluations": {
            LETTERS: {"items": "mine.gl.limit5", "protocol": "letters"},
            CLOZE: {"items": "serbian_cloze.sr", "protocol": "cloze"},
        }
    }
    assert specs.of_summary(found) == {"models": ["base", "tuned"], "evaluations": names}
    report = specs.of_report(found)
    assert {key: report[key] for key in ("models", "evaluations", "pairs")} == {
        "models": ["base", "tuned"], "evaluations": names, "pairs": [("base", "tuned")]
    }  # fmt: skip
    assert set(report) == {"models", "evaluations", "pairs", "look"}


# ----- content, and nothing but content -----------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["rows.jsonl", "shots.jsonl"])
def test_a_data_file_that_is_replaced_by_an_older_one_is_noticed(made, file):
    before = shown(made(), LETTERS)
    Path(file).write_text('{"q": "other", "o": ["a", "b"], "a": 0}\n')
    os.utime(file, (0, 0))
    assert shown(made(), LETTERS) != before


def test_a_data_file_that_is_touched_is_not(made):
    before = shown(made(), LETTERS)
    os.utime("rows.jsonl")
    assert shown(made(), LETTERS) == before


def test_a_data_file_that_is_missing_has_a_key_and_its_job_says_so(made):
    before = shown(made(), LETTERS)
    Path("rows.jsonl").unlink()
    assert shown(made(), LETTERS)["files"] == {**before["files"], "rows.jsonl": None}


def test_a_comment_in_a_prompts_file_changes_no_key_and_a_line_does(made, tmp_path):
    folder = tmp_path / "prompts"
    folder.mkdir()
    text = (WORKFLOW / "prompts" / "gl.yaml").read_text("utf-8")
    (folder / "gl.yaml").write_text(text)
    prompt_lines = prompts.prompt_lines.__wrapped__  # without the cache of one plan
    before = prompt_lines("gl", folder)
    (folder / "gl.yaml").write_text("# read by a speaker\n\n" + text)
    assert prompt_lines("gl", folder) == before
    (folder / "gl.yaml").write_text(text.replace("Resposta", "Contestación"))
    assert prompt_lines("gl", folder) != before
    assert prompt_lines("nn", folder) is None


def test_the_look_of_the_report_is_the_content_of_its_assets(made, monkeypatch, tmp_path):
    assets = tmp_path / "report"
    assets.mkdir()
    for name in ("a.js", "b.css", "c.html", "notes.md"):
        (assets / name).write_text("1")
    monkeypatch.setattr(specs, "WORKFLOW", tmp_path)
    found = made(lambda c, task: c["evaluations"].pop())

    def look() -> str:
        return specs.of_report(found)["look"]

    before = look()
    (assets / "notes.md").write_text("2")
    assert look() == before
    for name in ("a.js", "b.css", "c.html"):
        before = look()
        (assets / name).write_text("2")
        assert look() != before


def test_external_results_count_by_content(made):
    before = specs.of_comparisons(made())
    Path("old.csv").write_text("item_id,score\n1,3\n")
    os.utime("old.csv", (0, 0))
    assert specs.of_comparisons(made()) != before


# ----- the store's key ----------------------------------------------------------------------------------------------

# setting of a model -> another value of it; each changes outputs by more than float noise
CHANGES = {
    "kind": "masked",
    "dtype": "bfloat16",
    "quantization": {"load_in_8bit": True},
    "bos": "never",
    "max_length": 99,
    "chat": True,
    "strategy": "plain",
    "generation_engine": "vllm",
    "gguf_file": "x.gguf",
    "trust_remote_code": True,
    "fingerprint": "another",
}


@pytest.mark.parametrize("kind", [SCORES, GENERATIONS], ids=lambda kind: kind.name)
@pytest.mark.parametrize("setting", CHANGES)
def test_the_stores_key_changes_with_every_setting_that_changes_outputs(setting, kind):
    record = tiny.record("llama")
    assert evaluation_key(record | {setting: CHANGES[setting]}, REQUESTS, kind) != evaluation_key(
        record, REQUESTS, kind
    )


@pytest.mark.parametrize("setting", [{"device": "cuda"}, {"max_batch_tokens": 8}, {"name": "other"}, {"folder": "/x"}])
def test_the_stores_key_does_not_change_with_the_machine_or_the_name(setting):
    record = tiny.record("llama")
    assert evaluation_key(record | setting, REQUESTS, SCORES) == evaluation_key(record, REQUESTS, SCORES)


@pytest.mark.parametrize("column", REQUESTS.column_names)
def test_the_stores_key_changes_with_what_is_requested(column):
    other = REQUESTS.set_column(REQUESTS.column_names.index(column), column, [["a", "other"]])
    record = tiny.record("llama")
    assert evaluation_key(record, other, SCORES) != evaluation_key(record, REQUESTS, SCORES)
    fewer = REQUESTS.slice(0, 1)
    assert evaluation_key(record, fewer, SCORES) != evaluation_key(record, REQUESTS, SCORES)


def test_the_stores_key_does_not_change_with_the_order_of_rows():
    record = tiny.record("llama")
    assert evaluation_key(record, REQUESTS.take([1, 0]), SCORES) == evaluation_key(record, REQUESTS, SCORES)


def test_scores_and_generations_have_different_keys():
    record = tiny.record("llama")
    assert evaluation_key(record, REQUESTS, SCORES) != evaluation_key(record, REQUESTS, GENERATIONS)


@pytest.fixture
def versions(monkeypatch):
    """A function that says which version a library has from now on."""
    installed, other = work.version_of, {}
    monkeypatch.setattr(work, "version_of", lambda name: other.get(name, installed(name)))

    def upgrade(name: str, version: str) -> None:
        other[name] = version
        engine_version.cache_clear()

    yield upgrade
    engine_version.cache_clear()


@pytest.mark.parametrize("kind", [SCORES, GENERATIONS], ids=lambda kind: kind.name)
@pytest.mark.parametrize("library", ["torch", "transformers", "tokenizers"])
def test_the_engine_changes_with_the_version_of_each_library(versions, kind, library):
    before, key = engine_version(kind), evaluation_key(tiny.record("llama"), REQUESTS, kind)
    versions(library, "99.0")
    assert engine_version(kind) != before
    assert evaluation_key(tiny.record("llama"), REQUESTS, kind) != key


@pytest.mark.parametrize("kind", [SCORES, GENERATIONS], ids=lambda kind: kind.name)
def test_the_engine_changes_with_its_code(monkeypatch, kind):
    before = engine_version(kind)
    monkeypatch.setattr(work, "code_fingerprint", lambda *modules: f"another {modules}")
    engine_version.cache_clear()
    assert engine_version(kind) != before
    engine_version.cache_clear()


def test_the_number_of_bits_is_in_the_key():
    """Both need bitsandbytes, whose version is in the key of either."""
    record = tiny.record("llama")
    settings = ({"load_in_8bit": True}, {"load_in_4bit": True})
    assert len({evaluation_key(record | {"quantization": bits}, REQUESTS, SCORES) for bits in settings}) == 2


def test_scores_and_generations_have_different_keys_whatever_computes_them(monkeypatch):
    monkeypatch.setattr(work, "engine_version", lambda kind: "the same")
    record = tiny.record("llama")
    assert evaluation_key(record, REQUESTS, SCORES) != evaluation_key(record, REQUESTS, GENERATIONS)


@pytest.mark.parametrize(
    ("library", "kind", "setting"),
    [
        ("vllm", GENERATIONS, {"generation_engine": "vllm"}),
        ("peft", SCORES, {"adapter": {"folder": "a"}}),
        ("peft", GENERATIONS, {"adapter": {"folder": "a"}}),
        ("bitsandbytes", SCORES, {"quantization": {"load_in_8bit": True}}),
    ],
)
def test_a_library_that_only_some_models_need_is_in_the_keys_of_those(versions, library, kind, setting):
    record = tiny.record("llama")
    versions(library, "1.0")
    plain, needs = evaluation_key(record, REQUESTS, kind), evaluation_key(record | setting, REQUESTS, kind)
    versions(library, "1.1")
    assert evaluation_key(record, REQUESTS, kind) == plain
    assert evaluation_key(record | setting, REQUESTS, kind) != needs
