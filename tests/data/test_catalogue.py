"""Included datasets: every mapping gives the items that rows in the columns of the Hub mean."""

import json
import re

import pytest
from support.catalogue_rows import CASES, Case
from vernacular.core.languages import prompts_file, script_of
from vernacular.core.yaml import read
from vernacular.data.load import WORKFLOW, load_items
from vernacular.data.tasks import load_task, task_names
from vernacular.protocols.registry import PROTOCOLS
from vernacular.types import accepted_answers

TASKS = {name: path for name, path in task_names([WORKFLOW / "tasks"]).items()}


def load_case(directory, case: Case) -> list[dict]:
    path = directory / case.task / case.language / f"{case.split}.jsonl"
    path.parent.mkdir(parents=True)
    rows = [row | {"_config": case.config} for row in case.rows]
    if case.task == "afrimmlu":  # tables, in which lists are texts
        lines = [list(rows[0]), *(list(row.values()) for row in rows)]
        path.with_suffix(".tsv").write_text("".join("\t".join(line) + "\n" for line in lines), "utf-8")
    else:
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    task = json.loads(json.dumps(load_task(TASKS[case.task], PROTOCOLS), sort_keys=True))  # as the rules pass it
    items, _ = load_items(task, case.language, source=str(directory))
    return items


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.task}.{case.language}")
def test_rows_of_the_hub_become_items(tmp_path, case):
    items = load_case(tmp_path, case)
    assert [(item["choices"] or accepted_answers(item), item["gold"]) for item in items] == case.items


def test_lines_of_ntrex_are_texts_of_documents(tmp_path):
    task = load_task(TASKS["ntrex"])
    (tmp_path / "lines.txt").write_text("Bos días.\nOutro documento.\n")
    (tmp_path / "documents.tsv").write_text("bbc.1\nbbc.2\n")
    entry = task["languages"]["gl"]
    [source] = entry["source"]
    assert source["url"].endswith("/newstest2019-ref.glg.txt")
    entry["source"] = [{"file": "lines.txt", "clusters": "documents.tsv", "format": source["format"]}]
    items, _ = load_items(task | {"directory": str(tmp_path)}, "gl")
    assert [(item["item_id"], item["context"], item["cluster_id"]) for item in items] == [
        ("0", "Bos días.", "bbc.1"),
        ("1", "Outro documento.", "bbc.2"),
    ]


@pytest.mark.parametrize("name", TASKS)
def test_prompt_lines_have_the_script_that_the_dataset_states(name):
    scripts = {}
    for tag, entry in read(TASKS[name])[0].get("languages", {}).items():
        code = entry if isinstance(entry, str) else (entry or {}).get("code") or ""
        stated = re.search(r"[_-](Arab|Armn|Cyrl|Deva|Ethi|Geor|Grek|Hebr|Latn)(?![a-z])", code, re.IGNORECASE)
        if stated and (path := prompts_file(tag, WORKFLOW / "prompts")):
            own = script_of(text for text in read(path)[0].values() if isinstance(text, str))
            scripts[tag] = stated[1].title(), own
    assert {tag: pair for tag, pair in scripts.items() if len(set(pair)) > 1} == {}


def test_every_dataset_of_the_catalogue_has_made_up_rows():
    with_samples = {path.name for path in (WORKFLOW / "samples").iterdir()}
    unavailable = {"summarization", "truthfulqa", "xstorycloze", "ntrex", "treebank_corruptions", "blimp", "flores"}
    tested = {case.task for case in CASES} | with_samples
    assert {name for name in TASKS if name not in tested and not name.startswith(tuple(unavailable))} <= {
        name for name in TASKS if name.startswith("palmx_")
    }
