"""Threads of the jobs that run models."""

import re

import pytest
from support.workspace import Workspace, output_tail

pytestmark = pytest.mark.slow


def threads(workspace: Workspace) -> dict[str, list[str]]:
    """Return the threads of each planned job by command, on four cores."""
    run = workspace.run("-n", "-p", "-c4", "--quiet", "host")
    assert run.returncode == 0, output_tail(run)
    commands = ("infer", "similarity")
    return {name: sorted(re.findall(rf'VERNACULAR" {name} .*?"threads": (\d+),', run.stdout)) for name in commands}


def test_shards_and_models_on_the_cpu_share_the_cores_and_other_jobs_get_all(tmp_path):
    workspace = Workspace(tmp_path, [{"task": "openbookqa", "languages": ["gl"], "protocols": ["generation"]}])
    assert threads(workspace) == {"infer": ["4"], "similarity": ["4"]}
    workspace.config["models"]["tiny"] |= {"device": "cpu", "shards": 2}
    workspace.config["models"]["other"] = {"source": "./other", "device": "cpu"}
    assert threads(workspace) == {"infer": ["2", "2", "4"], "similarity": ["2", "2"]}
