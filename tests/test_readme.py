"""What the README says is so."""

import re
from pathlib import Path

from vernacular.config import load as config
from vernacular.data.tasks import load_task, task_names
from vernacular.protocols.registry import PROTOCOLS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_it_opens_with_what_it_is_a_result_and_the_two_commands():
    opening = r"# Vernacular\n\nVernacular is a Snakemake workflow .*?\n\| task \| .*?\n```sh\nmake quickstart [^\n]*\nmake test [^\n]*\n```"
    assert re.match(opening, README, re.DOTALL)


def test_its_table_lists_every_task_with_its_languages_and_protocols():
    rows = set(re.findall(r"^\| `(\w+)` \| ([^|]+ \| [^|]+) \|$", README, re.MULTILINE))
    for name, path in task_names([ROOT / "workflow" / "tasks"]).items():
        task = load_task(path)
        codes = list(task["languages"])
        shown = " ".join(codes) if len(codes) <= 8 else f"{len(codes)} languages"
        assert (name, f"{shown} | {', '.join(task['protocols'])}") in rows


def test_it_explains_every_protocol():
    for protocol in PROTOCOLS:
        assert f"| `{protocol}` |" in README


def test_its_configs_are_accepted(tmp_path, monkeypatch):
    whole, compared = re.findall(r"```yaml\n(models:.*?)```", README, re.DOTALL)
    (tmp_path / "config.yaml").write_text(whole, "utf-8")
    assert "openbookqa.gl.options.5shot" in config.load([tmp_path / "config.yaml"]).evaluations
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "samples_openbookqa_gl.jsonl").touch()
    (tmp_path / "config.yaml").write_text(compared + "\nevaluations: [{task: cola, data: samples}]\n", "utf-8")
    found = config.load([tmp_path / "config.yaml"])
    assert found.bases == {"llama-2-7b": ["llama-2-7b", "llama-2-gl"]}
    assert ("llama-2-7b", "llama-2-gl") in found.comparisons


def test_every_file_it_links_to_is_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_the_quickstart_covers_the_protocols_and_languages_it_promises():
    found = config.load([ROOT / "config.yaml"]).evaluations.values()
    assert {e.language for e in found} >= {"gl", "es", "ca", "pt", "en", "sr", "ar"}
    assert {e.protocol for e in found} == set(PROTOCOLS)
    assert len({e.task for e in found}) >= 6
