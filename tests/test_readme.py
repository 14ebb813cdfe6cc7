"""Statements and examples of the README are correct."""

import re
from pathlib import Path

from vernacular.config import load as config
from vernacular.data.tasks import load_task, task_names
from vernacular.protocols.registry import OWN

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
TASKS = (ROOT / "docs" / "included.md").read_text("utf-8")
PROTOCOLS = (ROOT / "docs" / "metrics.md").read_text("utf-8")


def test_readme_starts_with_figure_description_three_commands_and_a_short_task_file():
    opening = r"# Vernacular\n\n!\[[^\n]*\n\nVernacular evaluates .*?```sh\n([^\n]+\n){3}```.*?```yaml\n(?P<task>task: .*?)```"
    match = re.match(opening, README, re.DOTALL)
    assert match["task"].count("\n") < 25


def test_list_has_every_task_with_its_languages_and_protocols():
    rows = set(re.findall(r"^- `(\w+)` \(([^)]+)\): ([^;]+); .+$", TASKS, re.MULTILINE))
    assert f"[{len(rows)} tasks](docs/included.md)" in README
    for name, path in task_names([ROOT / "workflow" / "tasks"]).items():
        task = load_task(path)
        codes = list(task["languages"])
        languages = " ".join(codes) if len(codes) <= 8 else f"{len(codes)} languages"
        assert (name, languages, ", ".join(task["protocols"])) in rows


def test_every_protocol_is_described():
    for protocol in OWN:
        assert f"| `{protocol}` |" in PROTOCOLS


def test_readme_configs_are_valid(tmp_path, monkeypatch):
    full_config, comparison_config = re.findall(r"```yaml\n(models:.*?)```", README, re.DOTALL)
    (tmp_path / "config.yaml").write_text(full_config, "utf-8")
    assert "openbookqa.gl.options.5shot" in config.load([tmp_path / "config.yaml"]).evaluations
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "samples_openbookqa_gl.jsonl").touch()
    (tmp_path / "config.yaml").write_text(comparison_config + "\nevaluations: [{task: cola, data: samples}]\n", "utf-8")
    loaded = config.load([tmp_path / "config.yaml"])
    assert loaded.bases == {"llama-2-7b": ["llama-2-7b", "llama-2-gl"]}
    assert ("llama-2-7b", "llama-2-gl") in loaded.comparisons


def test_linked_files_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_quickstart_covers_the_stated_protocols_and_languages():
    evaluations = config.load([ROOT / "config.yaml"]).evaluations.values()
    assert {e.language for e in evaluations} >= {"gl", "es", "ca", "pt", "en", "sr", "ar"}
    # choice asks chat models, and the quickstart has none; translations and entities take too long for it
    absent = {"choice", "translation", "translation_bits", "entities", "entities_bits"}
    assert {e.protocol for e in evaluations} == set(OWN) - absent
    assert len({e.task for e in evaluations}) >= 6
