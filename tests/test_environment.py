"""The lock, the conda files and pyproject.toml say the same."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", re.MULTILINE)


def _name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins(text: str) -> dict[str, str]:
    return {_name(name): version for name, version in PIN.findall(text)}


LOCK = _pins((ROOT / "envs" / "lock.txt").read_text())


def test_what_is_installed_is_what_the_lock_says():
    wrong = {}
    for name, version in LOCK.items():
        installed = importlib.metadata.version(name).split("+")[0]
        if installed != version:
            wrong[name] = (version, installed)
    assert wrong == {}


def test_torch_is_pinned_to_the_build_that_is_tested():
    assert LOCK["torch"] == "2.13.0"


@pytest.mark.parametrize("path", sorted((ROOT / "envs").glob("*.yaml")), ids=lambda p: p.name)
def test_conda_files_parse_and_agree_with_the_lock(path):
    content = yaml.safe_load(path.read_text())
    assert content["channels"] == ["conda-forge", "nodefaults"]
    pip = next(entry["pip"] for entry in content["dependencies"] if isinstance(entry, dict))
    pins = _pins("\n".join(pip))
    assert len(pins) == len(pip)
    assert pins == {name: LOCK[name] for name in pins}


def test_every_direct_dependency_is_locked_and_stands_in_a_conda_file():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {_name(re.match(r"[A-Za-z0-9_.-]+", entry)[0]) for entry in project["dependencies"]}
    conda = set()
    for path in (ROOT / "envs").glob("*.yaml"):
        conda |= set(_pins(path.read_text().replace("      - ", "")))
    assert direct - set(LOCK) == set()
    assert direct - conda == set()


def test_every_rule_names_a_conda_file_that_is_there():
    found = 0
    for rules in (ROOT / "workflow" / "rules").glob("*.smk"):
        for name in re.findall(r'"(\.\./\.\./envs/[^"]+)"', rules.read_text()):
            assert (rules.parent / name).resolve().exists(), f"{rules.name} names {name}"
            found += 1
    assert found >= 8
