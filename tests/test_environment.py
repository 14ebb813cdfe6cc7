"""Consistency of the lock file, the conda files and pyproject.toml."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from vernacular import __version__
from vernacular.inference.self_test import TESTED

ROOT = Path(__file__).parent.parent
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", re.MULTILINE)


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins(text: str) -> dict[str, str]:
    return {_normalize_name(name): version for name, version in PIN.findall(text)}


LOCK = _pins((ROOT / "envs" / "lock.txt").read_text())


def test_installed_versions_match_the_lock():
    mismatches = {}
    for name, version in LOCK.items():
        installed = importlib.metadata.version(name).split("+")[0]
        if installed != version:
            mismatches[name] = (version, installed)
    assert mismatches == {}


def test_upper_bounds_are_those_of_the_tested_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"transformers>=5,<{TESTED[1]}" in project["dependencies"]
    assert tuple(map(int, LOCK["transformers"].split(".")[:2])) < tuple(map(int, TESTED[1].split(".")))
    versions = (ROOT / "docs" / "versions.md").read_text("utf-8")
    assert f"| transformers | {TESTED[0]} to {LOCK['transformers'].rpartition('.')[0]} |" in versions
    assert f"| PEFT | {LOCK['peft'].rpartition('.')[0]} |" in versions


def test_torch_is_pinned_to_the_tested_version():
    assert LOCK["torch"] == "2.13.0"


@pytest.mark.parametrize("path", sorted((ROOT / "envs").glob("*.yaml")), ids=lambda p: p.name)
def test_conda_files_parse_and_match_the_lock(path):
    content = yaml.safe_load(path.read_text())
    assert content["channels"] == ["conda-forge", "nodefaults"]
    pip = next(entry["pip"] for entry in content["dependencies"] if isinstance(entry, dict))
    pins = _pins("\n".join(pip))
    assert len(pins) == len(pip)
    assert pins == {name: LOCK[name] for name in pins}


def test_every_direct_dependency_is_locked_and_listed_in_a_conda_file():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {_normalize_name(re.match(r"[A-Za-z0-9_.-]+", entry)[0]) for entry in project["dependencies"]}
    conda = set()
    for path in (ROOT / "envs").glob("*.yaml"):
        conda |= set(_pins(path.read_text().replace("      - ", "")))
    assert direct - set(LOCK) == set()
    assert direct - conda == set()


def test_conda_files_of_all_rules_exist():
    count = 0
    for rules in (ROOT / "workflow" / "rules").glob("*.smk"):
        for name in re.findall(r'"(\.\./\.\./envs/[^"]+)"', rules.read_text()):
            assert (rules.parent / name).resolve().exists(), f"{rules.name} names {name}"
            count += 1
    assert count >= 8


def test_package_under_another_license_is_in_no_environment():
    """heliport (GPL 3) is an extra that people install, and is imported only if it is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["language"] == ["heliport"]
    others = [
        *project["dependencies"],
        *(entry for name, extra in project["optional-dependencies"].items() if name != "language" for entry in extra),
    ]
    assert "heliport" not in " ".join(others)
    assert [path.name for path in (ROOT / "envs").iterdir() if "heliport" in path.read_text()] == []


def test_citation_and_changelog_have_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert f"\n## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
