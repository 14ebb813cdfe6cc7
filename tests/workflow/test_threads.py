"""Threads of the jobs that run models."""

import re

from support.workspace import Workspace, output_tail


def threads(workspace: Workspace, command: str) -> list[str]:
    """Return the `--threads` of each planned job of a command, on four cores."""
    run = workspace.run("-n", "-p", "-c4", "--quiet", "host")
    assert run.returncode == 0, output_tail(run)
    return re.findall(rf"vernacular {command} .*?--threads (\d+) ", run.stdout)


def test_shards_and_models_on_the_cpu_share_the_cores(tmp_path):
    workspace = Workspace(tmp_path, [{"task": "openbookqa", "languages": ["gl"], "protocols": ["generation"]}])
    workspace.config["models"]["tiny"] |= {"device": "cpu", "shards": 2}
    workspace.config["models"]["other"] = {"source": "./other", "device": "cpu"}
    assert sorted(threads(workspace, "infer")) == ["2", "2", "4"]
    assert threads(workspace, "similarity") == ["2", "2"]


def test_one_job_on_any_device_gets_all_cores(tmp_path):
    workspace = Workspace(tmp_path, [{"task": "openbookqa", "languages": ["gl"], "protocols": ["generation"]}])
    assert threads(workspace, "infer") == threads(workspace, "similarity") == ["4"]
