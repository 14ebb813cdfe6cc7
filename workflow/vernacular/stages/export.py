"""Command `export`: per-item results -> files of the source tools, with their columns and order."""

from pathlib import Path

from vernacular.config.specs import ExportSpec
from vernacular.core import artifacts
from vernacular.core.artifacts import replacing
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage
from vernacular.core.written import rewriting
from vernacular.exchange import EXPORTS, READMES
from vernacular.exchange.source_tools import TOOLS
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.stages.common import items_in
from vernacular.types import Item


class Export(Stage):
    """Export results in the formats of PalmX, the Serbian cloze scripts and Grew-TSE, and translations as lines."""

    spec: ExportSpec  # of the rule: what the results depend on
    items_dir: Path  # directory of the items files
    tasks: list[Path]  # results per item
    out: Path  # directory with one directory per evaluation


def export(args: Export) -> str:
    """Write one model's results in the formats of PalmX, the Serbian cloze scripts and Grew-TSE, or as lines.

    Each evaluation has its directory, which stays empty if there are no results.
    """
    written = []
    for path in args.tasks:
        evaluation = args.spec.evaluations[path.stem]
        with rewriting(args.out / path.stem, "exports") as directory:
            if not artifacts.metadata(path, TASK_RESULTS).outcome.is_complete:
                continue
            rows = artifacts.read(path, TASK_RESULTS).to_pylist(maps_as_pydicts="strict")
            items = items_in(args.items_dir / f"{evaluation.items_stem}.parquet")
            written += write(directory, evaluation.protocol, items, rows)
    return f"export: {format_count(len(written), 'file')} in {args.out}"


def write(directory: Path, protocol: str, items: list[Item], rows: list[dict]) -> list[Path]:
    """Write the source tool's files of one evaluation, and a README of differences; return their paths.

    There are none if the protocol has no source tool. `rows`: per TASK_RESULTS.
    """
    if protocol not in EXPORTS:
        return []
    results = {row["item_id"]: {**row, "metrics": dict(row["metrics"])} for row in rows}
    order = sorted(items, key=lambda item: (item["source_row"], item["item_id"]))
    pairs = [(item, results[item["item_id"]]) for item in order if item["item_id"] in results]
    tool, paths = EXPORTS[protocol], []
    readme = {"README.txt": (READMES / f"{tool}.txt").read_text("utf-8")}
    for name, text in (TOOLS[tool](pairs) | readme).items():
        path = Path(directory) / name
        with replacing(path) as temporary:
            # as bytes: in text mode, Windows would change the line ends that the tools write
            temporary.write_bytes(text.encode("utf-8", "backslashreplace"))
        paths.append(path)
    return paths
