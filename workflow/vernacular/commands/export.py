"""Command `compat`: per-item results -> the files of the source tools."""

from vernacular.commands.common import items_in, why_missing
from vernacular.core import artifacts
from vernacular.metrics.compat import write
from vernacular.metrics.schema import TASK_RESULTS


def compat(args) -> str:
    """Write one model's results in the files of PalmX, the Serbian cloze scripts and Grew-TSE.

    Each evaluation has its directory, which stays empty where there are no results.
    """
    written = []
    for path in args.tasks:
        what = args.spec["evaluations"][path.stem]
        (args.out / path.stem).mkdir(parents=True, exist_ok=True)
        if why_missing(artifacts.metadata(path)):
            continue
        rows = artifacts.read(path, TASK_RESULTS).to_pylist(maps_as_pydicts="strict")
        written += write(
            args.out / path.stem, what["protocol"], items_in(args.items_folder / f"{what['items']}.parquet"), rows
        )
    return f"compat: {len(written)} files in {args.out}"
