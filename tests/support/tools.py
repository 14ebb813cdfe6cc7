"""Copies of the checkout, the wheel, and runs of Snakemake in other environments."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.once import once
from support.workspace import ROOT


def run_snakemake(directory: Path, *arguments: str, python: Path | str = sys.executable, **environment: str):
    """Run snakemake in `directory` with the interpreter `python`, without PYTHONPATH."""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | environment
    variables["PATH"] = f"{Path(python).parent}{os.pathsep}{variables['PATH']}"  # of the jobs
    command = [str(python), "-m", "snakemake", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, env=variables)


def layered_environment(directory: Path) -> Path:
    """Create an environment with the libraries of this one but without the package; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True, capture_output=True)
    (site_packages,) = (directory / "lib").glob("python*/site-packages")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (site_packages / "environment.pth").write_text("\n".join(libraries))
    return directory / "bin" / "python"


def git(directory: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True)


def copy_of_checkout(directory: Path) -> Path:
    """Copy the files of the checkout that are, or would be, under version control; return `directory`."""
    ignored = shutil.ignore_patterns(
        *(
            ".git",
            ".venv",
            ".tools",
            ".bench",
            ".docs",
            ".site",
            "dist",
            ".soak",
            ".snakemake",
            "__pycache__",
            "*.egg-info",
            ".*_cache",
            "build",
        ),
        *("results", "resources", "logs", "benchmarks", "tests"),
    )

    def ignore_outputs(path, names):
        # the directories of a run are at the top; workflow/report/ and others may have the same names
        return (
            ignored(path, names)
            if Path(path) == ROOT
            else ignored(path, names) & {"__pycache__", "vernacular.egg-info"}
        )

    return Path(shutil.copytree(ROOT, directory, symlinks=True, ignore=ignore_outputs))


def environment_with_wheel(tmp_path_factory) -> tuple[Path, Path]:
    """Return the wheel, and the interpreter of an environment in which it is installed; both are built once."""
    directory = once(tmp_path_factory, "wheel", _build_wheel)
    (wheel,) = directory.glob("*.whl")
    return wheel, directory / "environment" / "bin" / "python"


def _build_wheel(directory: Path) -> None:
    source = copy_of_checkout(directory / "source")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    python = layered_environment(directory / "environment")
    install = [*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
