"""Command `items`: datasets of a run, each in one language -> items."""

import logging
import sys
from pathlib import Path

from vernacular.config.specs import DatasetSpec, ItemsSpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage
from vernacular.core.fingerprint import fingerprint
from vernacular.core.metadata import ItemsMetadata, decode
from vernacular.core.paths import WORKFLOW
from vernacular.data.load import load_items
from vernacular.data.schema import ITEMS
from vernacular.stages.common import Batch

log = logging.getLogger("vernacular")


class Items(Stage):
    """Read datasets into items."""

    spec: ItemsSpec  # of the rule: what the results depend on
    out: Path  # directory of the items files


def items(args: Items) -> str:
    """Read every dataset into `args.out/{task}.{language}.parquet`.

    An unavailable dataset gets a file that states the reason; the others are read.
    """
    return _ItemFiles(args).run("items")


class _ItemFiles(Batch):
    key = "items"
    noun, done_label, failed_label = "dataset", "read", "unavailable"
    kind = ITEMS

    def metadata(self, spec: DatasetSpec) -> ItemsMetadata:
        key = fingerprint(self.inputs(spec))
        return ItemsMetadata(task=spec.task["task"], language=spec.language, key=key, fingerprint=key)

    def is_current(self, metadata: ItemsMetadata, spec: DatasetSpec) -> bool:
        return metadata.key == fingerprint(self.inputs(spec))  # its fingerprint depends on the rows, too

    def make(self, path: Path, spec: DatasetSpec) -> str:
        rows, metadata = load_items(spec.task, spec.language, source=spec.data, limit=spec.limit, seed=0, root=WORKFLOW)
        inputs = self.inputs(spec)
        input_fingerprint = artifacts.input_fingerprint(inputs, metadata["source"]["sha256"])
        metadata = decode(ItemsMetadata, {**metadata, "key": fingerprint(inputs), "fingerprint": input_fingerprint})
        artifacts.write(path, ITEMS, rows, metadata)
        for warning in metadata.warnings:
            log.warning(warning)
            print(f"items: {warning}", file=sys.stderr)
        n_examples = sum(row["few_shot"] for row in rows)
        n_dropped = sum(metadata.rows.dropped.values())
        counts = [format_count(len(rows) - n_examples, "item")]
        if n_examples:
            counts.append(f"{format_count(n_examples, 'candidate')} for few-shot examples")
        if n_dropped:
            counts.append(f"{format_count(n_dropped, 'row')} dropped (reasons in the notes)")
        return ", ".join(counts)
