"""Components of the rules' specs and of the store key; removing one from the code fails a test."""

import dataclasses
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from support import specs, tiny
from vernacular.config import dependencies
from vernacular.config import load as config
from vernacular.config.specs import ServerSpec
from vernacular.core import artifacts
from vernacular.core.errors import ConfigError
from vernacular.core.fields import Fields
from vernacular.core.fingerprint import file_fingerprint, fingerprint
from vernacular.core.paths import WORKFLOW
from vernacular.core.validate import schema
from vernacular.exchange import READMES
from vernacular.inference.job import work
from vernacular.inference.job.work import engine_version, evaluation_key
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.protocols import prompts
from vernacular.protocols import schema as protocols
from vernacular.types import DEFAULT_PROMPT

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
def load_config(tmp_path, monkeypatch):
    """A function that writes the config and its referenced files, and loads it."""
    monkeypatch.chdir(tmp_path)
    for name, kind in (("base", "llama"), ("encoder", "bert"), ("tuned", "llama")):
        tiny.save(kind, tmp_path / name)
    Path("rows.jsonl").write_text('{"q": "?", "o": ["a", "b"], "a": 0}\n')
    Path("shots.jsonl").write_text('{"q": "??", "o": ["a", "b"], "a": 0}\n')
    Path("old.csv").write_text("item_id,score\n1,2\n")

    def read(edit=lambda c, task: None) -> config.Config:
        config_values, task = json.loads(json.dumps([CONFIG, TASK]))
        edit(config_values, task)
        Path("mine.yaml").write_text(yaml.safe_dump(task))
        Path("config.yaml").write_text(yaml.safe_dump(config_values))
        dependencies.content_hash.cache_clear()
        return config.load(["config.yaml"])

    return read


def items_spec_of(cfg: config.Config, evaluation: str) -> dict:
    return specs.items_spec(cfg)["items"][cfg.evaluations[evaluation].items_stem]


# ----- each spec, in full -------------------------------------------------------------------------------------------


def test_items_spec_contains_task_language_files_and_limit(load_config):
    cfg = load_config()
    spec = items_spec_of(cfg, LETTERS)
    assert set(spec) == {"task", "language", "data", "limit", "files"}
    assert (spec["language"], spec["data"], spec["limit"]) == ("gl", "hub", 5)
    assert spec["task"] == {**cfg.tasks["mine"], "directory": "."}
    assert spec["files"] == {name: file_fingerprint(name) for name in ("rows.jsonl", "shots.jsonl")}
    samples = items_spec_of(cfg, CLOZE)
    assert samples["data"] == "samples"
    assert list(samples["task"]["languages"]) == ["sr"]
    assert {Path(file).resolve().parent for file in samples["files"]} == {WORKFLOW / "samples" / "serbian_cloze" / "sr"}


def test_items_spec_is_independent_of_other_languages_and_task_path(load_config):
    def edit(config_values, task):
        task["languages"]["es"] = task["languages"]["gl"]
        config_values["tasks"] = [os.getcwd()]

    single, multiple = items_spec_of(load_config(), LETTERS), items_spec_of(load_config(edit), LETTERS)
    assert multiple == single


def test_requests_spec_contains_evaluation_and_prompt_lines(load_config):
    cfg = load_config()
    assert set(specs.requests_spec(cfg)["evaluations"]) == set(cfg.evaluations)
    assert specs.requests_spec(cfg)["evaluations"][LETTERS] == {
        "evaluation": LETTERS,
        "items_stem": "mine.gl.limit5",
        "task": {"task": "mine", "item_type": "question", "protocols": ["letters", "generation"]},
        "language": "gl",
        "protocol": "letters",
        "shots": 2,
        "seed": 3,
        "style": "default",
        "options": {"option_rotations": 2},
        "prompts": {
            name: text
            for name, text in read_yaml("gl").items()
            if name
            not in ("variants", "wordings", "refusals", "choice", "answers", "names", "entities", "entity_types")
        },
    }


def read_yaml(language):
    return yaml.safe_load((WORKFLOW / "prompts" / f"{language}.yaml").read_text("utf-8"))


def test_requests_spec_of_a_variant_contains_its_texts_only(load_config):
    def edit(config_values, _task):
        config_values["evaluations"][0]["prompts"] = ["default", "instructed"]

    evaluations = specs.requests_spec(load_config(edit))["evaluations"]
    assert evaluations[LETTERS] == specs.requests_spec(load_config())["evaluations"][LETTERS]
    variant = evaluations[f"{LETTERS}.instructed"]
    assert variant["prompt"] == "instructed"
    texts = read_yaml("gl")["variants"]
    assert variant["prompts"]["templates"]["letters_question"] == texts["instructed"]["letters_question"]
    assert texts["formal"]["letters_question"] not in str(variant)


def test_model_and_encoder_specs_contain_source_and_permissions(load_config):
    cfg = load_config()
    base, tuned = specs.model_spec(cfg, "base"), specs.model_spec(cfg, "tuned")
    assert set(base) == {"name", "source", "kind", "allow_pickle", "trust_remote_code", "files"}
    assert (base["name"], base["source"], base["kind"]) == ("base", "./base", "auto")
    assert set(tuned) == {"name", "adapter", "allow_pickle", "allow_base_mismatch", "files"}
    encoder = specs.encoder_spec(cfg, "encoder.layer3")
    assert set(encoder) == {"name", "source", "layer", "files"}
    assert (encoder["name"], encoder["source"], encoder["layer"]) == ("encoder.layer3", "./encoder", 3)


def test_pipeline_of_an_encoder_s_class_is_in_its_spec_and_name(load_config):
    cfg = load_config(lambda c, task: c["similarity"]["encoders"]["default"].update(tokenizer_pipeline="class"))
    encoder = specs.encoder_spec(cfg, "encoder.layer3.class")
    assert (encoder["tokenizer_pipeline"], encoder["layer"]) == ("class", 3)


def test_every_model_setting_is_in_a_spec_or_determines_the_job(load_config):
    settings = set(schema(WORKFLOW / "schemas" / "config.schema.yaml")["$defs"]["model"]["properties"])
    Path("mine.jinja").write_text("{{ messages }}")
    settings -= {"chat_template_kwargs"}  # another name of chat_template_args
    rendering = {"chat_template": "./mine.jinja", "think_end_token": "</t>", "gen_kwargs": {"top_k": 1}}
    rendering |= {"tokenizer_pipeline": "class", "deterministic": True, "language_codes": {"gl": "glg_Latn"}}
    cfg = load_config(lambda c, task: c["models"]["base"].update(rendering))
    assert specs.inference_spec(cfg, ["base"])["models"]["base"]["chat_template"] == "{{ messages }}"
    in_keys = {*specs.model_spec(cfg, "base"), *specs.model_spec(cfg, "tuned")}
    in_keys |= set(specs.inference_spec(cfg, ["base"])["models"]["base"])
    in_keys |= {field.name for field in dataclasses.fields(ServerSpec)}  # of models behind a server only
    del cfg.models["tuned"]  # its base has another engine now, which applies no adapters
    cfg.models["base"]["engine_class"] = "json:Mine"
    other = specs.inference_spec(cfg, ["base"])
    in_keys |= set(other["models"]["base"])
    assert other["engines"]["scores"] != engine_version(SCORES), "its code is in the key, too"
    # in the names of files, in resources, and an input of the rule; series are expanded into models
    job_keys = {"shards", "gpus", "base", "series", "revisions", "steps", "tokens_per_step", "tokens_per_sample"}
    assert settings - in_keys == job_keys


def test_inference_spec_contains_settings_engines_and_libraries(load_config, set_version):
    set_version("peft", "1.0")
    set_version("vllm", "2.0")
    cfg = load_config()
    spec = specs.inference_spec(cfg, ["base", "tuned"])
    assert spec["engines"] == {"scores": engine_version(SCORES), "generations": engine_version(GENERATIONS)}
    assert set(spec) == {"models", "engines"}
    base = spec["models"]["base"]
    assert (base["dtype"], base["bos"], base["max_batch_tokens"], base["libraries"]) == ("bfloat16", "never", 64, [])
    assert spec["models"]["tuned"]["libraries"] == ["peft 1.0"]
    vllm = load_config(
        lambda c, task: (
            c["models"].pop("tuned") and c.pop("comparisons") and c["models"]["base"].update(generation_engine="vllm")
        )
    )
    assert specs.inference_spec(vllm, ["base"])["models"]["base"]["libraries"] == ["vllm 2.0"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("none", None), ("8bit", {"load_in_8bit": True}), ("4bit", {"load_in_4bit": True})],
)
def test_inference_spec_contains_quantization_config(load_config, setting, expected):
    cfg = load_config(lambda c, task: c["models"]["base"].update(quantization=setting))
    assert specs.inference_spec(cfg, ["base"])["models"]["base"]["quantization"] == expected


def test_similarity_spec_contains_metrics_options_and_encoders(load_config):
    evaluations = specs.similarity_spec(load_config())["evaluations"]
    assert set(evaluations) == {GENERATION, f"{GENERATION}.simil-eval"}
    encoders = dict.fromkeys(["cosine", "moverscore", "bertscore"], "encoder.layer3")
    assert evaluations[GENERATION] == {
        "evaluation": GENERATION,
        "items_stem": "mine.gl",
        "language": "gl",
        "style": "default",
        "metrics": [
            {"metric": "cosine"},
            {"metric": "moverscore", "idf": True},
            {"metric": "bertscore", "idf": True},
        ],
        "encoders": encoders,
    }
    legacy = evaluations[f"{GENERATION}.simil-eval"]
    assert legacy["style"] == "simil-eval"
    assert legacy["metrics"][1:] == [
        {"metric": "moverscore", "variant": "simil-eval"},
        {"metric": "bertscore", "idf": True},
    ]


def test_metrics_comparisons_and_summary_specs(load_config):
    cfg = load_config()
    names = ["mine.gl.letters.2shot.seed3", GENERATION, f"{GENERATION}.simil-eval", CLOZE]
    letters_evaluation = {
        "items_stem": "mine.gl.limit5",
        "task": "mine",
        "language": "gl",
        "protocol": "letters",
        "shots": 2,
        "seed": 3,
    }
    letters_evaluation |= {"style": "default", "prompt": "default"}
    metrics = specs.metrics_spec(cfg, "base")
    assert (metrics["model"], list(metrics["evaluations"])) == ("base", names)
    assert metrics["evaluations"][LETTERS] == letters_evaluation
    assert {"non podo", "i cannot"} <= set(metrics["refusals"]["gl"])
    comparisons = specs.comparisons_spec(cfg)
    assert comparisons == {
        "models": ["base", "tuned"],
        "pairs": [("base", "tuned")],
        "evaluations": {
            name: spec | {"dataset": cfg.evaluations[name].dataset} for name, spec in metrics["evaluations"].items()
        },
    }
    assert cfg.evaluations[LETTERS].dataset == "mine.gl.limit5"
    assert specs.external_results_spec(cfg) == comparisons | {
        "pairs": [],
        "external_results": {"old": {"path": "./old.csv", "files": {".": file_fingerprint("old.csv")}}},
    }
    assert specs.changes_spec(cfg) == comparisons | {"external": ["old"]}
    assert specs.export_spec(cfg) == {
        "evaluations": {
            LETTERS: {"items_stem": "mine.gl.limit5", "protocol": "letters"},
            CLOZE: {"items_stem": "serbian_cloze.sr", "protocol": "cloze"},
        },
        "readmes": fingerprint([[file.name, file_fingerprint(file)] for file in sorted(READMES.glob("*.txt"))]),
    }
    summary = specs.summary_spec(cfg)
    assert {key: summary[key] for key in ("models", "evaluations")} == {
        "models": ["base", "tuned"],
        "evaluations": names,
    }
    assert summary["tasks"]["mine"] == {}
    assert summary["tasks"]["serbian_cloze"]["title"] == "Serbian cloze"
    report = specs.report_spec(cfg)
    assert {key: report[key] for key in ("models", "evaluations", "pairs")} == {
        "models": ["base", "tuned"], "evaluations": names, "pairs": [("base", "tuned")]
    }  # fmt: skip
    assert set(report) == {"models", "evaluations", "pairs", "tasks", "templates", "external"}
    assert list(report["tasks"]) == ["mine", "serbian_cloze"]
    assert report["tasks"]["serbian_cloze"]["title"] == "Serbian cloze"


# ----- dependence on content only -----------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["rows.jsonl", "shots.jsonl"])
def test_replaced_data_file_with_older_mtime_changes_spec(load_config, file):
    original = items_spec_of(load_config(), LETTERS)
    Path(file).write_text('{"q": "other", "o": ["a", "b"], "a": 0}\n')
    os.utime(file, (0, 0))
    assert items_spec_of(load_config(), LETTERS) != original


def test_touched_data_file_does_not_change_spec(load_config):
    original = items_spec_of(load_config(), LETTERS)
    os.utime("rows.jsonl")
    assert items_spec_of(load_config(), LETTERS) == original


def test_missing_data_file_has_null_hash_in_spec(load_config):
    original = items_spec_of(load_config(), LETTERS)
    Path("rows.jsonl").unlink()
    assert items_spec_of(load_config(), LETTERS)["files"] == {**original["files"], "rows.jsonl": None}


def test_prompt_lines_ignore_comments_in_prompt_file(load_config, tmp_path):
    prompts_dir = tmp_path / "prompts"
    prompts_dir.mkdir()
    text = (WORKFLOW / "prompts" / "gl.yaml").read_text("utf-8")
    (prompts_dir / "gl.yaml").write_text(text)
    prompt_lines = prompts.prompt_lines.__wrapped__  # without the cache of one plan
    original = prompt_lines("gl", prompts_dir)
    (prompts_dir / "gl.yaml").write_text("# read by a speaker\n\n" + text)
    assert prompt_lines("gl", prompts_dir) == original
    (prompts_dir / "gl.yaml").write_text(text.replace("Resposta", "Contestación"))
    assert prompt_lines("gl", prompts_dir) != original
    assert prompt_lines("fy", prompts_dir) is None


def test_report_spec_changes_with_its_assets(load_config, monkeypatch, tmp_path):
    assets = tmp_path / "report"
    assets.mkdir()
    for name in ("a.js", "b.css", "c.html", "notes.md"):
        (assets / name).write_text("1")
    monkeypatch.setattr("vernacular.config.dependencies.WORKFLOW", tmp_path)
    cfg = load_config(lambda c, task: c["evaluations"].pop())

    def look() -> str:
        return specs.report_spec(cfg)["templates"]

    original = look()
    (assets / "notes.md").write_text("2")
    assert look() == original
    for name in ("a.js", "b.css", "c.html"):
        original = look()
        (assets / name).write_text("2")
        assert look() != original


def test_spec_changes_with_content_of_external_results(load_config):
    original, pairs = specs.external_results_spec(load_config()), specs.comparisons_spec(load_config())
    Path("old.csv").write_text("item_id,score\n1,3\n")
    os.utime("old.csv", (0, 0))
    assert specs.external_results_spec(load_config()) != original
    assert specs.comparisons_spec(load_config()) == pairs


# ----- the store's key ----------------------------------------------------------------------------------------------

# setting of a model -> another value of it; each changes outputs by more than float noise
CHANGES = {
    "kind": "masked",
    "dtype": "bfloat16",
    "quantization": {"load_in_8bit": True},
    "bos": "never",
    "tokenizer_pipeline": "class",
    "max_length": 99,
    "chat": True,
    "strategy": "plain",
    "generation_engine": "vllm",
    "engine_class": "module:Class",
    "trust_remote_code": True,
    "fingerprint": "another",
}


@pytest.mark.parametrize("kind", [SCORES, GENERATIONS], ids=lambda kind: kind.name)
@pytest.mark.parametrize("setting", CHANGES)
def test_store_key_changes_with_settings_that_change_outputs(setting, kind):
    record = tiny.record("llama")
    assert evaluation_key(record | {setting: CHANGES[setting]}, REQUESTS, kind) != evaluation_key(
        record, REQUESTS, kind
    )


@pytest.mark.parametrize(
    "setting", [{"device": "cuda"}, {"max_batch_tokens": 8}, {"name": "other"}, {"directory": "/x"}]
)
def test_store_key_is_independent_of_machine_and_name(setting):
    record = tiny.record("llama")
    assert evaluation_key(record | setting, REQUESTS, SCORES) == evaluation_key(record, REQUESTS, SCORES)


@pytest.mark.parametrize("column", REQUESTS.column_names)
def test_store_key_changes_with_requests(column):
    modified = REQUESTS.set_column(REQUESTS.column_names.index(column), column, [["a", "other"]])
    record = tiny.record("llama")
    assert evaluation_key(record, modified, SCORES) != evaluation_key(record, REQUESTS, SCORES)
    subset = REQUESTS.slice(0, 1)
    assert evaluation_key(record, subset, SCORES) != evaluation_key(record, REQUESTS, SCORES)


@pytest.mark.parametrize(
    "setting",
    [
        {"enable_thinking": False},
        {"system_instruction": "x"},
        {"chat_template_args": {"effort": "low"}},
        {"chat_template": "{{ messages }}"},
        {"think_end_token": "</t>"},
        {"gen_kwargs": "recommended"},
    ],
)
def test_settings_of_rendered_prompts_change_keys_of_rendered_rows_only(tmp_path, setting):
    rows = REQUESTS.to_pylist()
    files = {}
    for name, kind, has_turns in (
        ("chat", "generate", True),
        ("plain", "generate", False),
        ("letters", "score", True),
        ("text", "score", False),
    ):
        content = {"kind": kind, "prefix": "", "text": name}
        metadata = {"protocol": name, "request_kind": kind, "fingerprint": name} | (
            {"has_turns": True} if has_turns else {}
        )
        files[name] = artifacts.write(
            tmp_path / f"{name}.parquet", protocols.REQUESTS, [row | content for row in rows], metadata
        )

    def keys(record):
        return {unit.evaluation: unit.key for unit in work.work_units(record, files)}

    def changed(record):
        before, after = keys(record), keys(record | setting)
        assert keys(record | dict.fromkeys(setting)) == before
        return {name for name in files if before[name] != after[name]}

    record = tiny.record("llama", directory=str(tmp_path))
    assert changed(record | {"chat": "auto"}) == {"chat"}
    assert changed(record | {"chat": True}) == {"chat", "letters"}
    assert changed(record | {"chat": False}) == set()
    assert keys(record)["chat"] == evaluation_key(record, REQUESTS, GENERATIONS)


def test_store_key_is_independent_of_row_order():
    record = tiny.record("llama")
    assert evaluation_key(record, REQUESTS.take([1, 0]), SCORES) == evaluation_key(record, REQUESTS, SCORES)


def test_scores_and_generations_have_different_keys():
    record = tiny.record("llama")
    assert evaluation_key(record, REQUESTS, SCORES) != evaluation_key(record, REQUESTS, GENERATIONS)


@pytest.fixture
def versions(set_version):
    """A function that sets the version of a library."""

    def upgrade(name: str, version: str) -> None:
        set_version(name, version)
        engine_version.cache_clear()

    yield upgrade
    engine_version.cache_clear()


@pytest.mark.parametrize("kind", [SCORES, GENERATIONS], ids=lambda kind: kind.name)
@pytest.mark.parametrize("library", ["torch", "transformers", "tokenizers"])
def test_engine_version_changes_with_library_versions(versions, kind, library):
    original, key = engine_version(kind), evaluation_key(tiny.record("llama"), REQUESTS, kind)
    versions(library, "99.0")
    assert engine_version(kind) != original
    assert evaluation_key(tiny.record("llama"), REQUESTS, kind) != key


@pytest.mark.parametrize("kind", [SCORES, GENERATIONS], ids=lambda kind: kind.name)
def test_engine_version_changes_with_code(monkeypatch, kind):
    original = engine_version(kind)
    monkeypatch.setattr(work, "code_fingerprint", lambda *modules: f"another {modules}")
    engine_version.cache_clear()
    assert engine_version(kind) != original
    engine_version.cache_clear()


def test_store_key_contains_number_of_bits():
    """Both settings require bitsandbytes, whose version is in both keys."""
    record = tiny.record("llama")
    settings = ({"load_in_8bit": True}, {"load_in_4bit": True})
    assert len({evaluation_key(record | {"quantization": bits}, REQUESTS, SCORES) for bits in settings}) == 2


def test_scores_and_generations_have_different_keys_with_same_engine():
    record = tiny.record("llama") | {"engine_class": "json:Mine"}
    assert engine_version(SCORES, "json:Mine") == engine_version(GENERATIONS, "json:Mine")
    assert evaluation_key(record, REQUESTS, SCORES) != evaluation_key(record, REQUESTS, GENERATIONS)


@pytest.mark.parametrize(
    ("library", "kind", "setting"),
    [
        ("vllm", GENERATIONS, {"generation_engine": "vllm"}),
        ("peft", SCORES, {"adapter": {"directory": "a"}}),
        ("peft", GENERATIONS, {"adapter": {"directory": "a"}}),
        ("bitsandbytes", SCORES, {"quantization": {"load_in_8bit": True}}),
    ],
)
def test_optional_library_changes_only_keys_of_dependent_models(versions, library, kind, setting):
    record = tiny.record("llama")
    versions(library, "1.0")
    plain, dependent = evaluation_key(record, REQUESTS, kind), evaluation_key(record | setting, REQUESTS, kind)
    versions(library, "1.1")
    assert evaluation_key(record, REQUESTS, kind) == plain
    assert evaluation_key(record | setting, REQUESTS, kind) != dependent


def test_defaults_of_specs_are_empty():
    """They are not written, and so in no key: another default would be another result under the same key."""
    fields = [field for kind in _subclasses(Fields) for field in dataclasses.fields(kind) if "specs" in kind.__module__]
    assert len(fields) > 80
    for field in fields:
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        assert default is dataclasses.MISSING or not default or default == DEFAULT_PROMPT, field.name


def _subclasses(kind: type) -> list[type]:
    return [kind, *(each for child in kind.__subclasses__() for each in _subclasses(child))][kind is Fields :]


@pytest.mark.parametrize("other", [{"generation_engine": "vllm"}, {"engine_class": "json:Mine"}])
def test_deterministic_is_refused_where_another_engine_decides(load_config, other):
    def change(values, _):
        del values["models"]["tuned"]
        values["models"]["base"].update({"deterministic": True, **other})

    with pytest.raises(ConfigError, match=r"deterministic: \w+: .* decides what it computes together"):
        load_config(change)
