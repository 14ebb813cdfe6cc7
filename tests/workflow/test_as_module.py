"""Another workflow imports this one twice, with two configs and prefixes; each import yields the tables of its stages."""

import re
import shutil
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import yaml
from support import plain_run
from support.faults import rows
from support.tools import run_snakemake
from support.workspace import ROOT, output_tail

CONFIGS = {
    "galician": plain_run.CONFIG,
    # another model of the same name, another output directory, and a model that is unavailable
    "serbian": {
        "models": {"tiny": {"source": "./other", "dtype": "float32"}, "absent": {"source": "./absent"}},
        "data": "samples",
        "evaluations": [
            {"task": "serbian_cloze", "languages": ["sr"], "limit": 6},
            {"task": "cola", "languages": ["es"]},
        ],
        "similarity": plain_run.CONFIG["similarity"],
        "output": "tables",
    },
}
OUTPUTS = {"galician": "results", "serbian": "tables"}

# modules are usually named as what they import
IMPORTING = f"""
configfile: "study.yaml"

module vernacular:
    snakefile: "{ROOT}/workflow/Snakefile"
    config: config["galician"]
    prefix: "runs/gl"

use rule * from vernacular as gl_*

module serbian:
    snakefile: "{ROOT}/workflow/Snakefile"
    config: config["serbian"]
    prefix: "runs/sr"

use rule * from serbian as sr_*

rule everything:
    default_target: True
    input:
        rules.gl_all.input,
        rules.sr_all.input,

rule own:
    output: "own.txt"
    shell: "false | true; touch {{output}}"
"""


@pytest.fixture(scope="module")
def plain_runs(tmp_path_factory) -> dict[str, Path]:
    """The directories of all stages of both configs, run without Snakemake."""
    serbian = plain_run.run(tmp_path_factory.mktemp("serbian"), CONFIGS["serbian"], status=1)
    return {"galician": plain_run.plain_run(tmp_path_factory), "serbian": serbian}


@pytest.fixture(scope="module")
def directory(plain_runs, tmp_path_factory) -> Path:
    """The directory of a run of the importing workflow."""
    directory = tmp_path_factory.mktemp("importing")
    for model in ("causal", "other", "encoder"):
        shutil.copytree(plain_runs["serbian"] / model, directory / model)
    # one of the modules computes its outputs, the other finds them
    shutil.copytree(plain_runs["galician"] / "results" / "store", directory / "runs" / "gl" / "results" / "store")
    (directory / "Snakefile").write_text(IMPORTING)
    (directory / "study.yaml").write_text(yaml.safe_dump(CONFIGS))
    (directory / "config.yaml").write_text("models: {}\n")  # not what the modules are given
    # in as many threads as the plain run, because embeddings of two may differ in the last bits
    threads = ["--set-threads", *(f"{prefix}_{rule}=1" for prefix in ("gl", "sr") for rule in ("infer", "similarity"))]
    run = run_snakemake(directory, "-c2", "--keep-going", *threads)
    assert run.returncode == 1, output_tail(run)
    failed = re.findall(r"Error in rule (\w+)", run.stdout + run.stderr)
    assert set(failed) == {"sr_finish"}, output_tail(run)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize(("name", "prefix"), [("galician", "runs/gl"), ("serbian", "runs/sr")])
def test_module_yields_the_tables_of_a_plain_run(plain_runs, directory, name, prefix):
    plain, imported = plain_runs[name] / "results", directory / prefix / OUTPUTS[name]
    summary = pd.read_parquet(imported / "summary" / "results.parquet")
    assert summary["value"].notna().sum() > 5
    pd.testing.assert_frame_equal(summary, pd.read_parquet(plain / "summary" / "results.parquet"))
    tasks = sorted(path.relative_to(plain) for path in plain.glob("tiny/tasks/*.parquet"))
    assert len(tasks) >= 2
    for path in tasks:
        assert rows(imported / path) == rows(plain / path), path
    assert (imported / "report" / "index.html").exists()


@pytest.mark.slow
def test_module_writes_below_its_prefix_only(directory):
    given = {"Snakefile", "study.yaml", "config.yaml", "causal", "other", "encoder", ".snakemake"}
    assert {path.name for path in directory.iterdir()} - given == {"runs"}
    for prefix in ("gl", "sr"):
        names = {path.name for path in (directory / "runs" / prefix).iterdir()}
        assert names >= {"results", "resources", "logs", "benchmarks"}
        assert list((directory / "runs" / prefix / "results" / "store").rglob("*.parquet")), "a store of its own"
    names = {path.stem for path in (directory / "runs" / "gl" / "benchmarks" / "infer").glob("*.tsv")}
    assert names == {"tiny.1of1"}
    for prefix, said in (("gl", "4 evaluations found in the store"), ("sr", "2 evaluations computed")):
        assert said in (directory / "runs" / prefix / "logs" / "infer" / "tiny.1of1.log").read_text()


@pytest.mark.slow
def test_what_a_module_lacks_is_tried_again_by_the_next_run(directory):
    assert not (directory / "runs" / "sr" / "resources" / "models" / "absent.json").exists()
    plan = run_snakemake(directory, "-n", "--quiet", "reason", "host")
    assert plan.returncode == 0, output_tail(plan)
    assert "model: fetch absent" in plan.stdout + plan.stderr
    assert "model: fetch tiny" not in plan.stdout + plan.stderr


@pytest.mark.slow
def test_report_of_snakemake_contains_the_tables_of_a_module(directory):
    run = run_snakemake(directory, "gl_all", "--report", "report.zip")
    assert run.returncode == 0, output_tail(run)
    with zipfile.ZipFile(directory / "report.zip") as report:
        names = [Path(name).name for name in report.namelist()]
    assert {"leaderboard.xlsx", "results.csv", "index.html"} <= set(names)
    (directory / "report.zip").unlink()


@pytest.mark.slow
def test_rules_of_the_importing_workflow_run_as_without_modules(directory):
    run = run_snakemake(directory, "-c1", "own.txt")
    assert run.returncode != 0, "pipefail is Snakemake's default"
    assert not (directory / "own.txt").exists()


def test_mistake_in_the_config_of_a_module_is_reported_in_one_line(tmp_path):
    wrong = {"galician": {**CONFIGS["galician"], "modells": {}}, "serbian": CONFIGS["serbian"]}
    (tmp_path / "Snakefile").write_text(IMPORTING)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(wrong))
    run = run_snakemake(tmp_path, "-n")
    assert run.returncode == 1
    (message,) = run.stderr.splitlines()
    assert message.startswith("config of the module vernacular: ")
    assert '"models"' in message


def test_two_copies_in_one_workflow_are_rejected(tmp_path):
    ignored = shutil.ignore_patterns("vernacular", "samples", "report", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "workflow", tmp_path / "copy" / "workflow", ignore=ignored)
    second = f'"{tmp_path}/copy/workflow/Snakefile"'.join(IMPORTING.rsplit(f'"{ROOT}/workflow/Snakefile"', 1))
    (tmp_path / "Snakefile").write_text(second)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(CONFIGS))
    run = run_snakemake(tmp_path, "-n")
    assert run.returncode == 1
    assert "must use the same copy of Vernacular" in run.stderr.splitlines()[-1]
