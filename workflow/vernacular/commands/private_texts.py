"""Search of a directory for publication for what must not be published: paths, addresses of servers, and keys."""

import html
import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from vernacular.core.errors import UserError
from vernacular.core.publication import is_public_address

_SECRET_NAMES = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD)(_|$)", re.IGNORECASE)
_MIN_SECRET = 16  # characters; a shorter value, such as "disabled", is not a key


def check_nothing_private(folder: Path, roots: list[Path], sources: list[str]) -> None:
    """Raise UserError, with the file, if a file in `folder` contains a private text.

    Args:
        roots: Directories of this machine, below which no path may be named.
        sources: Paths and addresses of models: absolute paths and private addresses may not be named.
    """
    texts = _paths(roots, sources) | _addresses(sources) | _secrets()
    forms = {form: name for text, name in texts.items() for form in _forms(text)}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for part in _contents(path, max(map(len, forms), default=0)):
            for form, name in forms.items():
                if form in part:
                    raise UserError(f"{path.relative_to(folder)}: contains {name}. Nothing is published; {_ADVICE}.")


_ADVICE = "use relative paths in the config, and run snakemake again"


def _paths(roots: list[Path], sources: list[str]) -> dict[str, str]:
    """Return {text: description} of paths, also as parts of the names that are derived from them."""
    texts = {f"{path}/": f"the path {path}/" for path in roots if len(path.parts) > 1}
    deep = [path for path in roots if len(path.parts) > 2]
    texts |= {f"{'-'.join(path.parts[1:])}-": f"a name made of the path {path}/" for path in deep}
    return texts | {source: f"the path {source}" for source in sources if source.startswith("/") and "/" in source[1:]}


def _addresses(sources: list[str]) -> dict[str, str]:
    """Return {text: description} of hosts of servers."""
    texts = {}
    for source in sources:
        if source.startswith(("http://", "https://")) and not is_public_address(source):
            address = urlsplit(source).netloc
            texts |= {f"//{address}": f"the address {source}"}
            texts |= {address: f"the address {source}"} if ":" in address else {}
    return texts


def _secrets() -> dict[str, str]:
    """Return {value: description} of environment variables whose names are those of keys."""
    return {
        value: f"the value of the environment variable {name}"
        for name, value in os.environ.items()
        if _SECRET_NAMES.search(name) and len(value) >= _MIN_SECRET
    }


def _forms(text: str) -> set[bytes]:
    """Return a text as it is, and as it is escaped in JSON and in XML."""
    variants = {text, json.dumps(text)[1:-1], json.dumps(text).replace("/", "\\/")[1:-1], html.escape(text)}
    return {variant.encode("utf-8", "surrogatepass") for variant in variants}


_CHUNK = 1 << 24  # bytes; the results per item of a model may have gigabytes


def _contents(path: Path, longest: int) -> Iterator[bytes]:
    """Yield the content of a file; of a workbook or a table, what is compressed in it.

    A large file is divided into parts that overlap by `longest` bytes, so that no text is divided.
    """
    if path.suffix == ".xlsx":
        with zipfile.ZipFile(path) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    elif path.suffix == ".parquet":
        table = pq.ParquetFile(path).read()
        yield from (table.schema.metadata or {}).values()
        for column in table.columns:
            if pa.types.is_string(column.type) or pa.types.is_list(column.type):
                values = column.unique() if pa.types.is_string(column.type) else column
                yield json.dumps(values.to_pylist(), ensure_ascii=False).encode("utf-8", "surrogatepass")
    else:
        with open(path, "rb") as file:
            end = b""
            while chunk := file.read(_CHUNK):
                yield end + chunk
                end = (end + chunk)[-longest:] if longest else b""
