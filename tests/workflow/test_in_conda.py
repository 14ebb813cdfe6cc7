"""The environments of envs/*.yaml contain the dependencies of the stages, but not this package."""

import json
import os
import subprocess
import sys
import sysconfig

import pytest
import yaml
from support import tiny
from support.workspace import ROOT, output_tail

pytestmark = pytest.mark.slow


def test_stage_runs_this_checkout_in_an_environment_without_the_package(tmp_path):
    directory = tmp_path / "a directory {with} spaces"
    tiny.save("llama", directory / "causal")
    interpreter = directory / "bin" / "python"
    interpreter.parent.mkdir()
    # with -S python finds installed packages, but no editable installs
    libraries = f'PYTHONPATH="$PYTHONPATH:{sysconfig.get_path("purelib")}"'
    interpreter.write_text(f'#!/bin/sh\necho ran >> ran.txt\n{libraries} exec "{sys.executable}" -S "$@"\n')
    interpreter.chmod(0o755)
    config = {"models": {"tiny": {"source": "./causal"}}, "data": "samples", "evaluations": [{"task": "cola"}]}
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    environment = {**os.environ, "PATH": f"{interpreter.parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)  # as a conda environment does
    command = [sys.executable, "-m", "snakemake", "-c1", "--snakefile", str(ROOT / "Snakefile")]
    run = subprocess.run(
        [*command, "resources/models/tiny.json"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert run.returncode == 0, output_tail(run)
    assert json.loads((directory / "resources" / "models" / "tiny.json").read_text())["name"] == "tiny"
    assert (directory / "ran.txt").exists()
