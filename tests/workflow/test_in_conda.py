"""The environments of envs/*.yaml hold what the stages import, but not this package itself."""

import json
import os
import subprocess
import sys
import sysconfig

import yaml
from support import tiny
from support.workplace import ROOT, said


def test_a_stage_runs_this_checkout_in_an_environment_that_does_not_hold_it(tmp_path):
    folder = tmp_path / "a folder {of} one's own"
    tiny.save("llama", folder / "causal")
    bare = folder / "bin" / "python"
    bare.parent.mkdir()
    # with -S python finds the packages that are installed, but no link to a checkout
    libraries = f'PYTHONPATH="$PYTHONPATH:{sysconfig.get_path("purelib")}"'
    bare.write_text(f'#!/bin/sh\necho ran >> ran.txt\n{libraries} exec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    config = {"models": {"tiny": {"source": "./causal"}}, "data": "samples", "evaluations": [{"task": "cola"}]}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    environment = {**os.environ, "PATH": f"{bare.parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)  # as a conda environment does
    command = [sys.executable, "-m", "snakemake", "-c1", "--snakefile", str(ROOT / "Snakefile")]
    run = subprocess.run(
        [*command, "resources/models/tiny.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert run.returncode == 0, said(run)
    assert json.loads((folder / "resources" / "models" / "tiny.json").read_text())["name"] == "tiny"
    assert (folder / "ran.txt").exists()
