"""Publications of small runs, and all of their bytes, those in workbooks and tables unpacked."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from vernacular import cli
from vernacular.report.page import build


def contents(folder: Path) -> dict[str, bytes]:
    """Return all bytes of each file, those in workbooks and tables unpacked."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found[str(path.relative_to(folder))] = path.read_bytes()
        if path.suffix == ".xlsx":
            with zipfile.ZipFile(path) as archive:
                found |= {f"{path.name}/{name}": archive.read(name) for name in archive.namelist()}
        if path.suffix == ".parquet":
            table = pq.read_table(path, partitioning=None)
            found[f"{path.name}/rows"] = repr((table.to_pylist(), table.schema.metadata)).encode()
    return found


def published_run(directory: Path, write_run: Callable[[Path], dict]) -> tuple[Path, Path]:
    """Return the results of a run that `write_run` writes to `directory`, with its report, and its publication."""
    arguments = write_run(directory)
    results = arguments.pop("results")
    build(results, results / "report", **arguments)
    assert cli.main(["publish", str(results), str(directory / "lab"), "--organization", "A lab"]) == 0
    return results, directory / "lab"
