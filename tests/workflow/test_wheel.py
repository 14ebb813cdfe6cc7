"""An installed wheel contains the workflow and everything that it reads, and runs without the checkout."""

import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml
from support import tiny
from support.tools import environment_with_wheel
from support.workspace import ROOT, output_tail

CONFIG = {
    "models": {"tiny": {"source": "./causal", "dtype": "float32"}},
    "data": "samples",
    "evaluations": [
        {"task": "openbookqa", "languages": ["gl"], "protocols": ["letters"], "limit": 4},
        {"task": "treebank_agreement", "languages": ["gl"], "limit": 4},
    ],
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel, and the interpreter of an environment with it."""
    return environment_with_wheel(tmp_path_factory)


@pytest.mark.slow
def test_wheel_contains_all_files_of_the_workflow(installed):
    wheel, _ = installed
    with zipfile.ZipFile(wheel) as archive:
        names = {name.removeprefix("vernacular/") for name in archive.namelist()}
    package = ROOT / "workflow" / "vernacular"
    modules = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    files = {
        f"checkout/{path.relative_to(ROOT).as_posix()}"
        for directory in ("workflow", "envs", "profiles", "config")
        for path in (ROOT / directory).rglob("*")
        if path.is_file() and package not in path.parents and path.suffix != ".pyc" and "egg-info" not in str(path)
    }
    assert {"checkout/workflow/Snakefile", "checkout/workflow/tasks/cola.yaml"} <= files
    assert modules | files <= names
    assert {name for name in names if not name.startswith(("checkout/", "../", "vernacular-"))} - modules == set()


@pytest.mark.slow
def test_wheel_runs_outside_of_the_checkout(installed, tmp_path):
    _, python = installed
    tiny.save("llama", tmp_path / "causal")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(CONFIG))
    command = [python.parent / "vernacular", "snakefile"]
    snakefile = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    assert snakefile.is_relative_to(python.parents[1])
    command = [python.parent / "vernacular", "run", "mine.yaml", "-c2"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, output_tail(run)
    summary = tmp_path / "results" / "summary" / "results.csv"
    assert "openbookqa.gl.letters.0shot" in summary.read_text()
    assert (tmp_path / "results" / "report" / "index.html").exists()
    check = [str(python), "-c", "import vernacular.core.paths as p, vernacular; print(vernacular.__file__, p.WORKFLOW)"]
    paths = subprocess.run(check, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert str(ROOT) not in paths


@pytest.mark.slow
def test_stage_of_a_wheel_runs_in_another_environment(installed, tmp_path):
    """As with `--sdm conda`: the environment of a job has the libraries, but not the package."""
    _, python = installed
    (stage,) = python.parents[1].glob("lib/python*/site-packages/vernacular/checkout/workflow/stage.py")
    site_packages = stage.parents[3]
    libraries = f"import sys; sys.path[:] = [p for p in sys.path if p != {str(site_packages)!r}]"
    (tmp_path / "sitecustomize.py").write_text(libraries)
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    missing = [str(python), "-c", "import vernacular"]
    assert subprocess.run(missing, env=environment, cwd=tmp_path, capture_output=True).returncode != 0
    command = [str(python), str(stage), "--version"]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "vernacular 0.1.0\n"), run.stderr
