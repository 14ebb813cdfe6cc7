"""Estimate how long a model of a given size takes for the complete grid of the source tools.

    python bench/grid.py [--parameters 7e9]

Prompts are built from the samples as in a real run; their characters per item, times the rows of the full dataset
(`expected_rows` of the task file), give the number of tokens. See docs/resources.md.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import yaml
from vernacular.config import dependencies as specs
from vernacular.config import load as config
from vernacular.config import resources as estimates
from vernacular.data.load import load_items
from vernacular.protocols.build import build
from vernacular.protocols.schema import CHARACTERS_PER_TOKEN, NEW_TOKEN, request_size

LANGUAGES = ["gl", "en", "ca", "es", "pt", "ar", "sr"]
FEW_SHOT = {"shots": [0, 5]}
GRID = [
    {"task": "openbookqa", "protocols": ["generation", "options"], **FEW_SHOT},
    {"task": "belebele", "protocols": ["generation", "options"], **FEW_SHOT},
    {"task": "veritasqa", "protocols": ["generation"], **FEW_SHOT},
    {"task": "truthfulqa", "protocols": ["generation"], **FEW_SHOT},
    {"task": "xstorycloze", "protocols": ["generation"], **FEW_SHOT},
    {"task": "xstorycloze", "protocols": ["minimal_pair"]},
    {"task": "cola"},
    {"task": "calame", "protocols": ["last_word"]},
    {"task": "global_piqa", "protocols": ["minimal_pair"]},
    {"task": "palmx_culture", "protocols": ["letters"]},
    {"task": "serbian_cloze"},
    {"task": "multiblimp"},
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parameters", type=float, default=7e9)
    parameters = parser.parse_args().parameters
    grid, tasks_without_samples = read_grid()
    sizes = defaultdict(list)  # (task, protocol, shots) -> per language: tokens read and written per item, read once
    for evaluation in grid.evaluations.values():
        sizes[evaluation.task, evaluation.protocol, evaluation.shots].append(per_item(grid, evaluation))
    print("| task | protocol | shots | items | million tokens read | million written | GPU hours |")
    print("|---|---|---|---|---|---|---|")
    total = [0.0, 0.0, 0.0]
    for (task, protocol, shots), language_sizes in sizes.items():
        read, new, shared = (mean(column) for column in zip(*language_sizes, strict=True))
        languages, items = expected_rows_of(grid.tasks[task])
        read, new = read * items + shared * languages, new * items
        seconds = 2 * parameters * (read + NEW_TOKEN * new) / estimates.OPERATIONS["gpu"]
        total = [sum(values) for values in zip(total, (read, new, seconds), strict=True)]
        print(
            f"| `{task}` | {protocol} | {shots} | {items:,} in {languages} | {read / 1e6:.2f} | {new / 1e6:.2f} |"
            f" {seconds / 3600:.2f} |"
        )
    print(f"| all | | | | {total[0] / 1e6:.1f} | {total[1] / 1e6:.2f} | {total[2] / 3600:.1f} |")
    print(f"\nNo samples, and so no row: {', '.join(tasks_without_samples) or 'none'}.")


def read_grid() -> tuple[config.Config, list[str]]:
    """Return the configuration of the grid, and the tasks without samples."""
    entries = [entry for entry in GRID if (config.WORKFLOW / "samples" / entry["task"]).is_dir()]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "config.yaml"
        path.write_text(
            yaml.safe_dump({"models": {"any": {"source": "./any"}}, "data": "samples", "evaluations": entries})
        )
        return config.load([path]), sorted({entry["task"] for entry in GRID if entry not in entries})


def per_item(grid: config.Config, evaluation: config.Evaluation) -> tuple[float, float, float]:
    """Return the tokens read and written per item, and those of the prefix that all items share."""
    spec = specs.items_spec(grid).items[evaluation.items_stem]
    items, _ = load_items(spec.task, evaluation.language, source="samples", limit=None, seed=0, root=config.WORKFLOW)
    settings = {key: getattr(evaluation, key) for key in ("language", "protocol", "shots", "seed", "style")}
    requests, _ = build(items, spec.task, **settings, options=dict(evaluation.options))
    requests = [request for request in requests if request["kind"] in ("score", "generate")]
    size = request_size(requests)
    prefixes = {request["prefix"] for request in requests}
    shared = sum(map(len, prefixes)) if len(prefixes) == 1 else 0
    count = len({request["item_id"] for request in requests})
    read = (size["characters"] - shared) / count / CHARACTERS_PER_TOKEN
    return read, size["new_tokens"] / count, shared / CHARACTERS_PER_TOKEN


def expected_rows_of(task: dict) -> tuple[int, int]:
    """Return (languages of the grid, their rows); a dataset of unknown size is assumed to have the mean size."""
    entries = [task["languages"][language] for language in LANGUAGES if language in task["languages"]]
    counts = [entry["expected_rows"] for entry in entries if entry.get("expected_rows")]
    return len(entries), round(mean(counts) * len(entries))


if __name__ == "__main__":
    main()
