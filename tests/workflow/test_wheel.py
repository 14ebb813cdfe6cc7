"""An installed wheel contains the workflow and everything that it reads, and runs without the checkout."""

import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from support.tools import copy_of_checkout, environment_with_wheel, layered_environment
from support.workspace import ROOT, output_tail
from vernacular import __version__


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
    assert (run.returncode, run.stdout) == (0, f"vernacular {__version__}\n"), run.stderr


@pytest.mark.slow
def test_wheel_of_the_source_distribution_has_the_same_files(installed, tmp_path):
    wheel, _ = installed
    source = copy_of_checkout(tmp_path / "source")
    build = "import sys; from setuptools.build_meta import build_sdist, build_wheel as wheel; print({}(sys.argv[1]))"
    command = [sys.executable, "-c", build.format("build_sdist"), str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert {"Makefile", "Snakefile", "CITATION.cff", "docs", "zensical.toml"} <= {
        path.name for path in unpacked.iterdir()
    }
    command = [sys.executable, "-c", build.format("wheel"), str(tmp_path)]
    subprocess.run(command, cwd=unpacked, check=True, capture_output=True)
    names = [set(zipfile.ZipFile(path).namelist()) for path in (wheel, next(tmp_path.glob("*.whl")))]
    assert names[0] == names[1]


def steps_of_recipes() -> tuple[list[tuple[str, str]], list[str], list[tuple[str, str]], list[str]]:
    """Return (source, destination) of the files, and the commands, of the Dockerfile and of Apptainer's definition."""
    dockerfile = (ROOT / "envs" / "Dockerfile").read_text("utf-8").replace("\\\n", "")
    copies = [(source, line[-1]) for line in re.findall(r"^COPY (.*)$", dockerfile, re.M) for line in [line.split()] for source in line[:-1]]  # fmt: skip
    runs = [re.sub(r"\s+", " ", command).strip() for line in re.findall(r"^RUN (.*)$", dockerfile, re.M) for command in line.split("&&")]  # fmt: skip
    definition = (ROOT / "envs" / "vernacular.def").read_text("utf-8")
    files, post = (
        [line.strip() for line in definition.split(f"%{name}\n")[1].split("\n\n")[0].splitlines()]
        for name in ("files", "post")
    )
    pairs = [(source, to.removeprefix("/opt/vernacular/") or "./") for source, to in map(str.split, files)]
    assert post[0] == "cd /opt/vernacular"
    return copies, runs, pairs, post[1:]


def test_recipes_of_docker_and_apptainer_have_the_same_steps():
    copies, runs, pairs, post = steps_of_recipes()
    assert sorted(copies) == sorted(pairs)
    assert runs == post


@pytest.mark.slow
def test_steps_of_the_container_run_in_an_empty_directory(tmp_path):
    """The versions of the lock file are installed already, so that pip needs no index."""
    copies, runs, _, _ = steps_of_recipes()
    python = layered_environment(tmp_path / "environment")
    container = tmp_path / "container"
    container.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for source, destination in copies:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, container / destination, ignore=ignored)
        else:
            shutil.copy(ROOT / source, container / destination)
    variables = os.environ | {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "PIP_NO_INDEX": "1"}
    for command in runs:
        run = subprocess.run(command, shell=True, cwd=container, capture_output=True, text=True, env=variables)
        assert run.returncode == 0, output_tail(run)
    shutil.rmtree(container)
    command = [str(python.parent / "vernacular"), "--version"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=variables | {"PYTHONPATH": ""})
    assert (run.returncode, run.stdout) == (0, f"vernacular {__version__}\n"), run.stderr
    check = [str(python), "-c", "import vernacular; print(vernacular.__file__)"]
    assert str(tmp_path) in subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, env=variables).stdout
