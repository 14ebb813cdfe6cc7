"""All bytes of a publication, those in workbooks and tables unpacked."""

import zipfile
from pathlib import Path

import pyarrow.parquet as pq


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
