"""External results that cannot be used, and models and checkpoints without results, are missing from comparisons only."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from support import observed, stages, tiny
from support.malformed import NESTED
from support.stage_run import CONFIG, OPTIONS, Run
from vernacular.config import load as config
from vernacular.config.directories import clear_unavailable
from vernacular.core import artifacts
from vernacular.data.schema import ITEMS
from vernacular.exchange.external_results import read_samples

SAMPLE = {"doc": {"q": "x"}, "arguments": [["x", " y"]], "filtered_resps": [["-1.0", "False"]], "acc": 1.0}
# name of the file -> (content, what the note says)
MALFORMED = {
    "other_items.csv": ("question,correct\nWhat else?,1\n", "other_items.csv: no evaluation matches|0 of 1 results match"),
    "no_columns.csv": ("a,b\n1,2\n", "no_columns.csv, line 2: no item: expected one of the columns item_id"),
    "no_output.tsv": ("item_id\tb\n1\t2\n", "no_output.tsv, line 2: no output: expected a column prediction or correct"),
    "not_bool.csv": ("item_id,correct\n1,perhaps\n", "not_bool.csv, line 2"),
    "empty.csv": ("", "empty.csv: the file is empty"),
    "broken.jsonl": ('{"item_id": "1", "correct": 1}\n{"item_id"', "broken.jsonl, line 2"),
    "deep.jsonl": (NESTED, "deep.jsonl"),
    "unknown.csv": (f"evaluation,item_id,correct\n{OPTIONS}x,1,1\n", 'unknown evaluation "openbookqa.gl.options.0shotx"'),
    "samples_a_1.jsonl": (json.dumps(SAMPLE | {"arguments": 5}), "samples_a_1.jsonl, line 1: arguments"),
    "samples_b_1.jsonl": (json.dumps(SAMPLE | {"filtered_resps": [["high", 1]]}), "samples_b_1.jsonl, line 1: filtered_resps"),
    "earlier.parquet": ("PAR1", "earlier.parquet: damaged, or not per-item results"),
    "vanished.csv": ("item_id,correct\n1,1\n", "vanished.csv"),
    "bug.jsonl": (json.dumps(SAMPLE), "ZeroDivisionError: of a library"),
}  # fmt: skip


def read_csv(name: str) -> pd.DataFrame:
    return pd.read_csv(f"results/summary/{name}.csv")


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    """A run of two models, one that does not exist, and a series with a damaged checkpoint, up to its metrics."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two", "encoder", "out/checkpoint-5", "out/checkpoint-9"):
        tiny.save("bert" if name == "encoder" else "llama", Path(name))
    path = Path("out/checkpoint-9/model.safetensors")
    path.write_bytes(path.read_bytes()[:-100])
    models = {
        **CONFIG["models"],
        "gone": {"source": "./gone"},
        "mine": {"series": "./out/checkpoint-*", "dtype": "float32"},
    }
    evaluations = [{**CONFIG["evaluations"][0], "protocols": ["options"]}]
    pairs = [{"baseline": "one", "candidate": name} for name in ("two", "gone", "mine.step9", "usable")]
    Path("config.yaml").write_text(yaml.safe_dump({**CONFIG, "models": models, "evaluations": evaluations}))
    run = Run(config.load(["config.yaml"]))
    assert run("items") == run("requests") == 0
    for name in run.config.models:
        for command in ("model", "infer", "collect", "metrics"):
            assert run(command, name) == 0, (command, name)
    items = artifacts.read(f"resources/items/{run.config.evaluations[OPTIONS].items_stem}.parquet", ITEMS).to_pylist()
    for name, (content, _) in MALFORMED.items():
        Path("files", name).parent.mkdir(exist_ok=True)
        Path("files", name).write_text(content)
    lines = [f"{OPTIONS},{item['item_id']},1" for item in items]
    Path("files/usable.csv").write_text("\n".join(["evaluation,item_id,correct", *lines]))
    metrics = [{"task": "openbookqa", "metrics": {"accuracy": 0.5, "other": "N/A"}, "num_instances": 4}]
    Path("files/stated").mkdir()
    Path("files/stated/metrics.json").write_text(json.dumps({"tasks": metrics}))
    Path("files/stated/broken.json").write_text('{"tasks": [')
    external = {Path(name).stem: {"path": f"files/{name}"} for name in (*MALFORMED, "usable.csv", "stated")}
    external["not_compared"] = external["no_columns"]
    pairs += [{"baseline": "one", "candidate": "stated"}]
    pairs += [{"baseline": "one", "candidate": Path(name).stem} for name in MALFORMED]
    settings = {"models": models, "evaluations": evaluations, "comparisons": pairs, "external_results": external}
    Path("config.yaml").write_text(yaml.safe_dump({**CONFIG, **settings}))
    return Run(config.load(["config.yaml"]))


@pytest.mark.slow
def test_all_other_values_are_written(run, capsys):
    arguments = run.external("")
    Path("files/vanished.csv").unlink()  # between planning and the job

    def fail_once(arguments):
        if arguments["path"].name == "bug.jsonl":
            raise ZeroDivisionError("of a library")

    with observed.calls(read_samples, fail_once):
        assert stages.run("external", **arguments) == 0
    for command in ("compare", "changes", "curves", "summary", "report"):
        assert run(command) == 0, command
    comparisons = read_csv("comparisons")
    assert set(comparisons["candidate"]) == {"two", "usable", "gone", "mine.step9"}
    assert set(comparisons.loc[comparisons["difference"].notna(), "candidate"]) == {"two", "usable"}
    notes = read_csv("notes").query("kind == 'unavailable'").set_index("models")["note"]
    wrong = []
    for name, (_, reason) in MALFORMED.items():
        note = notes[Path(name).stem]
        if not re.fullmatch(f"external results not used: .*({reason}).*", note):
            wrong.append(note)
    assert wrong == []
    assert {"gone", "mine.step9"} < set(notes.index)
    assert not {"usable", "stated", "not_compared"} & set(notes.index)
    [unpaired] = read_csv("unpaired").to_dict("records")
    assert (unpaired["origin"], unpaired["outside_value"], unpaired["items"]) == ("stated", 0.5, "other items")
    assert unpaired["note"] == "dataset not stated"
    texts = read_csv("notes").query("kind == 'external results'")["note"]
    assert any(text.startswith("not_compared: external results not used: ") for text in texts)
    assert any("1 value not used" in text for text in texts)
    assert any("broken.json: not used" in text for text in texts)
    assert any("1 of other items" in text for text in texts)
    assert "unpaired" in pd.ExcelFile("results/summary/leaderboard.xlsx").sheet_names
    assert set(read_csv("results")["model"]) == {"one", "two", "mine.step5"}
    points = read_csv("curves").query("category.isna()")
    assert points.loc[points["value"].notna(), "model"].unique().tolist() == ["mine.step5"]
    assert Path("results/report/index.html").exists()
    assert Path("results/comparisons/one--bug/changes.csv").exists()

    capsys.readouterr()
    assert run("finish") == 1
    message = capsys.readouterr().err
    assert "  no_columns\n    external results not used: files/no_columns.csv, line 2: no item" in message
    assert "Traceback" not in message

    shutil.copy("files/usable.csv", "files/vanished.csv")
    assert run("external") == run("summary") == 0
    assert "vanished" in set(read_csv("comparisons")["candidate"])

    cleared = clear_unavailable(Path("resources"), Path("results"))
    assert Path("results/compared/external/bug.parquet") in cleared, "the next run tries again"
    assert Path("results/compared/external/usable.parquet").exists()
    assert Path("results/summary/comparisons.parquet").exists()
