"""Command `items`: datasets of a run, each in one language -> items."""

import logging
import sys
from pathlib import Path

from vernacular.commands.common import Batch
from vernacular.config.specs import DatasetSpec, ItemsSpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage
from vernacular.core.fingerprint import fingerprint
from vernacular.core.paths import WORKFLOW
from vernacular.data.load import load_items
from vernacular.data.schema import ITEMS

log = logging.getLogger("vernacular")


class Items(Stage):
    """Read datasets into items."""

    spec: ItemsSpec  # of the rule: what the results depend on
    out: Path  # directory of the items files


def items(args: Items) -> str:
    """Read every dataset into `args.out/{task}.{language}.parquet`.

    An unavailable dataset gets a file that states the reason; the others are read.
    """
    return _Datasets(args).run("items")


def give_up(args: Items, reason: str) -> str:
    """Write items files without rows that state why the remaining datasets are unavailable."""
    return "\n".join(_Datasets(args).fail_rest(reason))


class _Datasets(Batch):
    key = "items"
    noun, done_label, failed_label = "dataset", "read", "unavailable"

    def is_current(self, metadata: dict, spec: DatasetSpec) -> bool:
        return metadata.get("key") == fingerprint(self.inputs(spec))

    def make(self, path: Path, spec: DatasetSpec) -> str:
        rows, metadata = load_items(spec.task, spec.language, source=spec.data, limit=spec.limit, seed=0, root=WORKFLOW)
        input_fingerprint = artifacts.input_fingerprint(self.inputs(spec), metadata["source"]["sha256"])
        key = fingerprint(self.inputs(spec))
        artifacts.write(path, ITEMS, rows, {**metadata, "key": key, "fingerprint": input_fingerprint})
        for warning in metadata["warnings"]:
            log.warning(warning)
            print(f"items: {warning}", file=sys.stderr)
        n_examples = sum(row["few_shot"] for row in rows)
        n_dropped = sum(metadata["rows"]["dropped"].values())
        counts = [format_count(len(rows) - n_examples, "item")]
        if n_examples:
            counts.append(f"{format_count(n_examples, 'candidate')} for few-shot examples")
        if n_dropped:
            counts.append(f"{format_count(n_dropped, 'row')} dropped (reasons in the notes)")
        return f"items: {path.stem}: {', '.join(counts)}"

    def fail(self, path: Path, spec: DatasetSpec, reason: str) -> str:
        metadata = {"task": spec.task["task"], "unavailable": reason}
        artifacts.write(path, ITEMS, [], {**metadata, "fingerprint": artifacts.input_fingerprint(metadata)})
        return f"items: {path.stem}: unavailable ({reason})"
