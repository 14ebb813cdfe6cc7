"""Statements and examples of the README are correct."""

import re
from pathlib import Path

from vernacular.config import load as config
from vernacular.data.tasks import load_task, task_names
from vernacular.protocols.registry import OWN

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_readme_starts_with_description_results_and_commands():
    opening = r"# Vernacular\n\nVernacular is a Snakemake workflow .*?\n\| task \| .*?\n```sh\nmake quickstart [^\n]*\nmake test [^\n]*\n```"
    assert re.match(opening, README, re.DOTALL)


def test_readme_table_lists_every_task_with_its_languages_and_protocols():
    rows = set(re.findall(r"^\| `(\w+)` \| ([^|]+ \| [^|]+) \|$", README, re.MULTILINE))
    for name, path in task_names([ROOT / "workflow" / "tasks"]).items():
        task = load_task(path)
        codes = list(task["languages"])
        languages = " ".join(codes) if len(codes) <= 8 else f"{len(codes)} languages"
        assert (name, f"{languages} | {', '.join(task['protocols'])}") in rows


def test_readme_describes_every_protocol():
    for protocol in OWN:
        assert f"| `{protocol}` |" in README


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
    # choice asks chat models, and the quickstart has none; translations take too long for it
    assert {e.protocol for e in evaluations} == set(OWN) - {"choice", "translation", "translation_bits"}
    assert len({e.task for e in evaluations}) >= 6
