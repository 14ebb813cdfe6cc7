"""Series in a config: expansion into checkpoints, deleted checkpoints, and error messages."""

import shutil
from pathlib import Path

import pytest
import yaml
from support import specs
from support.messages import assert_states
from support.specs import curves_spec
from vernacular import cli
from vernacular.config import load as config
from vernacular.config.series import RECORDS, listing_path
from vernacular.core.errors import ConfigError
from vernacular.core.model_record import write_record

REST = {"evaluations": [{"task": "cola", "languages": ["gl"], "data": "samples"}]}


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for step in (1000, 500, 9000, 10000):
        Path(f"out/checkpoint-{step}").mkdir(parents=True)
    Path("out/checkpoint-500.zip").touch()
    return tmp_path


def load(models: dict, **others) -> config.Config:
    Path("config.yaml").write_text(yaml.safe_dump({"models": models, **REST, **others}, sort_keys=False))
    return config.load(["config.yaml"])


def message(models: dict) -> str:
    with pytest.raises(ConfigError) as error:
        load(models)
    return str(error.value)


def record(model: str, source: str, *, output: str = "results") -> None:
    """Write what remains of an evaluated checkpoint: a copy of its record, and a file of results."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    listing = {"allow_pickle": False, "code": False, "files": {"config.json": {"sha256": "0"}}}
    contents = {"root": str(Path(source).resolve()), **listing}
    for parent in (RECORDS, RECORDS.parent):
        content = {"name": model, "source": source, "contents": contents, "files_key": "first"}
        write_record(parent / f"{model}.json", content)
    Path(output, model, "scores").mkdir(parents=True)
    Path(output, model, "scores", "cola.gl.acceptability.0shot.parquet").touch()


def test_each_directory_becomes_a_model_in_order_of_training():
    cfg = load({"mine": {"series": "./out/checkpoint-*", "dtype": "float32", "tokens_per_step": 2048}})
    assert list(cfg.models) == ["mine.step500", "mine.step1000", "mine.step9000", "mine.step10000"]
    assert cfg.models["mine.step500"]["source"] == "./out/checkpoint-500"
    assert cfg.models["mine.step500"]["dtype"] == "float32"
    assert not {"series", "steps", "tokens_per_step"} & set(cfg.models["mine.step500"])
    assert cfg.bases == {name: [name] for name in cfg.models}
    assert vars(cfg.checkpoints["mine.step1000"]) == {
        "series": "mine", "curve": "mine", "name": "checkpoint-1000", "step": 1000, "tokens": 2048000, "words": None,
    }  # fmt: skip


def test_revisions_are_sources_of_one_repository():
    models = {"pythia": {"source": "EleutherAI/pythia-70m", "revisions": ["step10000", "step9000", "main"],
                         "steps": {"main": 143000}, "tokens_per_step": 2097152}}  # fmt: skip
    cfg = load(models)
    assert list(cfg.models) == ["pythia.step9000", "pythia.step10000", "pythia.step143000"]
    assert cfg.models["pythia.step143000"]["source"] == "EleutherAI/pythia-70m@main"
    assert cfg.checkpoints["pythia.step143000"].tokens == 143000 * 2097152


def test_adapter_series_share_the_job_of_their_base_and_the_last_is_compared():
    cfg = load({"base": {"source": "./base"}, "gl": {"base": "base", "series": "./out/checkpoint-*"}})
    assert cfg.bases == {"base": ["base", "gl.step500", "gl.step1000", "gl.step9000", "gl.step10000"]}
    assert cfg.models["gl.step500"]["adapter"] == "./out/checkpoint-500"
    assert "source" not in cfg.models["gl.step500"]
    assert cfg.comparisons == [("base", "gl.step10000")]


def test_checkpoints_can_be_compared_by_name():
    comparison = {"baseline": "mine.step500", "candidate": "mine.step1000"}
    assert load({"mine": {"series": "./out/checkpoint-*"}}, comparisons=[comparison]).comparisons == [
        ("mine.step500", "mine.step1000")
    ]
    assert load({"mine": {"series": "./out/checkpoint-*"}}).comparisons == []


def test_stages_are_separate_curves():
    revisions = ["stage2-ingredient1-step1000-tokens5B", "stage1-step150000-tokens630B", "stage1-step9000-tokens38B"]
    cfg = load({"olmo": {"source": "allenai/OLMo-2-1124-7B", "revisions": revisions}})
    assert [(c.curve, c.step, c.tokens) for c in cfg.checkpoints.values()] == [
        ("olmo/stage1", 9000, 38 * 10**9), ("olmo/stage1", 150000, 630 * 10**9),
        ("olmo/stage2-ingredient1", 1000, 5 * 10**9),
    ]  # fmt: skip
    assert list(cfg.models)[2] == "olmo.stage2-ingredient1.step1000"


def test_words_and_tokens_replace_missing_steps():
    names = [f"chck_{n}M" for n in (10, 1, 100)]
    cfg = load({"baby": {"source": "org/baby", "revisions": names}})
    assert list(cfg.models) == ["baby.words1000000", "baby.words10000000", "baby.words100000000"]
    cfg = load({"rp": {"source": "org/rp", "revisions": ["700b_tokens", "240b_tokens"]}})
    assert [c.tokens for c in cfg.checkpoints.values()] == [240 * 10**9, 700 * 10**9]


def test_samples_of_nemo_become_tokens():
    Path("nemo/gpt--step=10-consumed_samples=80.0").mkdir(parents=True)
    cfg = load({"nemo": {"series": "./nemo/*", "tokens_per_sample": 4096}})
    assert [(c.step, c.tokens) for c in cfg.checkpoints.values()] == [(10, 80 * 4096)]


def test_pattern_of_revisions_is_read_from_the_listing():
    models = {"pythia": {"source": "EleutherAI/pythia-70m", "revisions": "step*"}}
    assert "not listed yet. Run `vernacular revisions config.yaml` with a network" in message(models)
    with pytest.raises(ConfigError, match="with a config file that has this model"):
        config.load([], {"models": models, **REST}, origin="config of the module")
    path = listing_path("pythia")
    path.parent.mkdir(parents=True)
    revisions = {"main": "c0", "step10000": "c1", "step9000": "c2"}
    write_record(path, {"name": "pythia", "source": "EleutherAI/pythia-70m", "revisions": revisions})
    assert list(load(models).models) == ["pythia.step9000", "pythia.step10000"]
    models["pythia"]["source"] = "EleutherAI/pythia-160m"
    assert "not listed yet" in message(models)
    models["pythia"] |= {"source": "EleutherAI/pythia-70m", "revisions": "stage*"}
    assert 'no revision of EleutherAI/pythia-70m matches "stage*"' in message(models)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [({"source": "./out"}, 'requires a Hub ID, got "./out"'), ({}, "revisions: requires source: owner/name")],
)
def test_revisions_of_no_repository_are_not_listed(capsys, entry, expected):
    Path("config.yaml").write_text(yaml.safe_dump({"models": {"mine": entry | {"revisions": "step*"}}, **REST}))
    assert cli.main(["revisions"]) == 1
    assert_states(capsys.readouterr().err, "config.yaml", "models.mine", expected)


def test_deleted_checkpoint_with_results_remains_and_its_key_does_not_change():
    models = {"mine": {"series": "./out/checkpoint-*"}}
    record("mine.step500", "./out/checkpoint-500")
    shutil.rmtree("out/checkpoint-500")
    cfg = load(models)
    assert next(iter(cfg.models)) == "mine.step500"
    assert specs.model_spec(cfg, "mine.step500")["files"] == "first"
    assert "mine.step500" not in load(models, output="elsewhere").models  # has no results there
    assert "mine.step500" not in load({"mine": {"series": "./out/check*int-1*"}}).models
    shutil.rmtree("results/mine.step500")
    assert next(iter(load(models).models)) == "mine.step1000"


def test_deleted_checkpoint_is_found_where_a_module_writes():
    """With a prefix, records and results are below it; those of another workflow in the directory do not count."""
    models = {"mine": {"series": "./out/checkpoint-*"}}

    def names(locate) -> list[str]:
        Path("config.yaml").write_text(yaml.safe_dump({"models": models, **REST}))
        return list(config.load(["config.yaml"], locate=locate).models)

    record("mine.step500", "./out/checkpoint-500")
    shutil.rmtree("out/checkpoint-500")
    Path("pre").mkdir()
    assert "mine.step500" not in names(lambda directory: f"pre/{directory}")
    for directory in ("resources", "results"):
        shutil.move(directory, f"pre/{directory}")
    assert names(lambda directory: f"pre/{directory}")[0] == "mine.step500"
    assert "mine.step500" not in names(lambda directory: directory)


def test_deleted_model_outside_a_series_is_not_kept():
    record("mine", "./out/checkpoint-500")
    shutil.rmtree("out/checkpoint-500")
    cfg = load({"mine": {"source": "./out/checkpoint-500"}})
    assert "changed" in specs.model_spec(cfg, "mine")["files"]


def test_keys_without_series_are_unchanged_and_those_with_series_contain_the_positions():
    cfg = load({"one": {"source": "./out/checkpoint-500"}})
    assert not {"checkpoint", "checkpoints"} & {*specs.model_spec(cfg, "one"), *specs.summary_spec(cfg)}
    assert set(specs.inference_spec(cfg, ["one"])["models"]["one"]).isdisjoint({"checkpoint"})
    cfg = load({"mine": {"series": "./out/checkpoint-*"}})
    assert specs.model_spec(cfg, "mine.step500")["checkpoint"]
    assert specs.inference_spec(cfg, ["mine.step500"])["models"]["mine.step500"]["checkpoint"]
    for spec in (curves_spec(cfg), specs.summary_spec(cfg), specs.report_spec(cfg)):
        assert [(c["model"], c["step"]) for c in spec["checkpoints"]] == [
            (f"mine.step{step}", step) for step in (500, 1000, 9000, 10000)
        ]


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ({"mine": {"series": "./nothing-*"}}, "models.mine.series: no directory or GGUF file matches ./nothing-*"),
        ({"mine": {"series": "./out/checkpoint-*", "source": "./out"}}, "cannot be combined with source:"),
        ({"mine": {"series": "./out/**"}}, "** is not supported"),
        ({"mine": {"series": "out/checkpoint-*"}}, "starts with ./, / or ~"),
        ({"mine": {"revisions": ["step1"]}}, "revisions: requires source: owner/name"),
        ({"mine": {"source": "./out", "revisions": ["step1"]}}, 'requires a Hub ID, got "./out"; use series:'),
        ({"mine": {"source": "a/b@main", "revisions": ["step1"]}}, "given in source: and in revisions:"),
        ({"mine": {"source": "a/b", "tokens_per_step": 5}}, "tokens_per_step requires series: or revisions:"),
        ({"mine": {"source": "a/b", "revisions": ["step1", "main"]}}, '"main" states no step; give it under steps:'),
        ({"mine": {"source": "a/b", "revisions": ["ckpt_356"]}}, "steps: {ckpt_356: NUMBER}"),
        ({"mine": {"source": "a/b", "revisions": ["step1", "2b_tokens"]}}, '"2b_tokens" states no step, unlike'),
        ({"mine": {"source": "a/b", "revisions": ["step10", "step-10"]}}, '"step10" and "step-10" state the same step'),
        ({"mine": {"source": "a/b", "revisions": ["step10"]}, "mine.step10": {"source": "a/b"}}, "name of another model"),
        ({"mine": {"source": "a/b", "revisions": ["step10"]}, "MINE.step10": {"source": "a/b"}}, "name of another model"),
        ({"mine": {"source": "a/b", "revisions": [f"{'x' * 100}-step1"]}}, "; exclude it."),
        ({"mine": {"source": "a/b", "revisions": ["step1", f"step{10**20}"]}}, '000" states no step; give it under steps:'),
        ({"mine": {"series": "./out/checkpoint-*"}, "t": {"base": "mine", "adapter": "a/b"}}, '"mine" is a series; the base'),
    ],
)  # fmt: skip
def test_mistakes_are_reported_in_one_line(models, expected):
    text = message(models)
    assert expected in text
    assert "config.yaml" in text
    assert "\n" not in text
