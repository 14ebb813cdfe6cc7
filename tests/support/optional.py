"""What tests use only where all of it is installed: environments that make creates, programs, packages.

Something that is absent, of another version or half installed skips the tests that need it, which then state the reason.
"""

import importlib
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def site_packages(environment: str, *requirements: str) -> Path | None:
    """Return the packages of an environment if make has completed it with the present text of `requirements`."""
    complete = ROOT / environment / ".complete"
    expected = "".join((ROOT / path).read_text("utf-8") for path in requirements)
    if not complete.is_file() or complete.read_text("utf-8") != expected:
        return None
    return next((ROOT / environment / "lib").glob("python*/site-packages"), None)


def package_problem(name: str) -> str | None:
    """Return why a package cannot be used: not found, or its import fails, as half of an installation does."""
    try:
        importlib.import_module(name)
    except (ImportError, OSError) as error:
        return f"the package {name} cannot be imported: {error}"
    return None


def needs_package(name: str) -> pytest.MarkDecorator:
    problem = package_problem(name)
    return pytest.mark.skipif(problem is not None, reason=problem or "")


@cache
def major_version(program: str) -> str | None:
    """Return the first number that `program --version` prints, None if it does not start."""
    run = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+", run.stdout) if run.returncode == 0 else None
    return found and found[0]


def browser_problem(browser: str | None, driver: str | None) -> str | None:
    """Return why Chromium cannot be driven: programs that are missing, do not start, or belong to two versions."""
    if not (browser and driver):
        return "chromium and chromedriver are not installed (Debian: chromium chromium-driver)"
    versions = [major_version(browser), major_version(driver)]
    if None in versions or versions[0] != versions[1]:
        return f"chromium and chromedriver of one version are needed, got {versions[0]} and {versions[1]}"
    return None


def _latex_problem() -> str | None:
    programs = [shutil.which(name) for name in ("pdflatex", "kpsewhich")]
    if None in programs:
        return "LaTeX is not installed"
    package = subprocess.run([programs[1], "booktabs.sty"], capture_output=True, text=True, check=False)
    return None if package.stdout.strip() else "LaTeX is installed without booktabs"


TOOLS_PACKAGES = site_packages(".tools", "envs/tools.txt")
TOOLS = ROOT / ".tools" / "bin"
TOOLS_REASON = "`make tools` installs what this needs, in the versions of envs/tools.txt"
needs_tools = pytest.mark.skipif(TOOLS_PACKAGES is None, reason=TOOLS_REASON)

BENCH = ROOT / ".bench" / "bin" / "python"
needs_bench = pytest.mark.skipif(
    site_packages(".bench", "bench/requirements.txt", "bench/packaged-models.txt") is None,
    reason="`make .bench/.complete` installs lm_eval, in the version of bench/requirements.txt",
)
needs_rsync = pytest.mark.skipif(shutil.which("rsync") is None, reason="needs the program rsync")
needs_latex = pytest.mark.skipif((_reason := _latex_problem()) is not None, reason=_reason or "")
