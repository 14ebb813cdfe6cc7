"""What a tool is given: the raw rows of the samples, read here with csv and json, and the texts of our requests.

A raw row is used where a tool defines the text to score (a sentence, a prompt); a request's text where the prompt is
ours and the tool only scores it. `write` collects both in one JSON file, which all tools read.
"""

import csv
import json
from pathlib import Path

import yaml
from vernacular.config.load import load
from vernacular.core import artifacts
from vernacular.data.schema import ITEMS
from vernacular.inference.schema import GENERATIONS
from vernacular.protocols.schema import REQUESTS

SAMPLES = Path(__file__).parents[2] / "workflow" / "samples"
SPLITS = ("test", "devtest", "eval", "validation", "train")  # the first that exists is the evaluated one


def raw_rows(task: str, language: str) -> list[dict] | None:
    """Return the rows of a sample file in its own columns; None for a treebank."""
    files = {path.stem: path for path in (SAMPLES / task / language).iterdir()}
    path = files[next(split for split in SPLITS if split in files)]
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    if path.suffix == ".json":
        return json.loads(text)
    if path.suffix in (".tsv", ".csv"):
        return list(csv.DictReader(text.splitlines(), delimiter="\t" if path.suffix == ".tsv" else ","))
    return None


def write(run: Path, path: Path) -> dict:
    """Write all evaluations of the run in `run` to the JSON file `path`, and return them.

    Raises:
        ValueError: A raw row is not the one from which the item was made.
    """
    settings = yaml.safe_load((run / "config.yaml").read_text("utf-8"))["models"]
    models = {}
    for name, setting in settings.items():
        record = json.loads((run / "resources" / "models" / f"{name}.json").read_text("utf-8"))
        models[name] = {"directory": record["directory"], "kind": record["kind"], "bos": setting.get("bos", "auto")}
    [encoder] = (run / "resources" / "encoders").glob("*.json")
    # not all files: those of an earlier config may still be there
    paths = [
        run / "results" / "requests" / f"{name}.parquet" for name in sorted(load([run / "config.yaml"]).evaluations)
    ]
    rows = {
        "models": models,
        "encoder": _encoder(json.loads(encoder.read_text("utf-8"))),
        "evaluations": [_evaluation(run, request_path, models) for request_path in paths],
    }
    path.write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    return rows


def _encoder(record: dict) -> dict:
    """Return directory, layer, and the prefix that sentence-transformers reads from the encoder's files."""
    settings = json.loads((Path(record["directory"]) / "config_sentence_transformers.json").read_text("utf-8"))
    prefix = (settings.get("prompts") or {}).get(settings.get("default_prompt_name")) or ""
    return {"directory": record["directory"], "layer": record.get("layer"), "prefix": prefix}


def _evaluation(run: Path, path: Path, models: dict) -> dict:
    metadata = artifacts.metadata(path)
    evaluation = {name: metadata[name] for name in ("task", "language", "protocol", "shots", "style")}
    task, language = evaluation["task"], evaluation["language"]
    requests: dict[str, dict] = {}
    for row in artifacts.read(path, REQUESTS).to_pylist():
        names = ("prefix", "text", "span_start", "span_end", "stop", "max_new_tokens")
        requests.setdefault(row["item_id"], {})[row["role"]] = {name: row[name] for name in names}
    raw, items = raw_rows(task, language), {}
    # with and without limit
    for items_path in sorted((run / "resources" / "items").glob(f"{task}.{language}.*parquet")):
        for item in artifacts.read(items_path, ITEMS).to_pylist():
            if item["item_id"] in requests:
                row = raw[item["source_row"]] if raw else None
                _check(item, row)
                own = {"raw": row, "requests": requests[item["item_id"]], "extra": dict(item["extra"] or ())}
                items[item["item_id"]] = item | own
    if items.keys() != requests.keys():
        raise ValueError(f"{path.name}: items not found in {run / 'resources' / 'items'}")
    generations = run / "results"
    outputs = {name: _outputs(generations / name / "generations" / path.name) for name in models}
    return {"id": metadata["evaluation"], **evaluation, "items": list(items.values()), "outputs": outputs}


def _outputs(path: Path) -> dict[str, dict]:
    """Return {item ID: its generation}; {} if nothing was generated."""
    rows = artifacts.read(path, GENERATIONS).to_pylist() if path.exists() else []
    names = ("raw_output", "output", "rendered", "finish_reason", "n_tokens")
    return {row["item_id"]: {name: row[name] for name in names} for row in rows}


def _check(item: dict, row: dict | None) -> None:
    if row is None:
        return
    texts = " ".join([item["context"], item["question"], *item["choices"], item["target"] or ""])
    if not any(isinstance(value, str) and len(value) > 10 and value.strip() in texts for value in row.values()):
        raise ValueError(f"item {item['item_id']}: made from another row than number {item['source_row']}, {row}")
