"""Command `compat`: per-item results -> the files of the source tools."""

from vernacular.commands.common import items_in, why_missing
from vernacular.core import artifacts
from vernacular.metrics.compat import write
from vernacular.metrics.schema import TASK_RESULTS


def compat(args) -> str:
    """One model's results in the files of PalmX, the Serbian cloze scripts and Grew-TSE; a folder per evaluation."""
    args.out.mkdir(parents=True, exist_ok=True)
    written = []
    for path in args.tasks:
        what = args.spec["evaluations"][path.stem]
        if why_missing(artifacts.metadata(path)):
            continue
        rows = artifacts.read(path, TASK_RESULTS).to_pylist(maps_as_pydicts="strict")
        written += write(
            args.out / path.stem, what["protocol"], items_in(args.items_folder / f"{what['items']}.parquet"), rows
        )
    return f"compat: {len(written)} files in {args.out}"
