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
from huggingface_hub import get_token

from vernacular.core.errors import UserError
from vernacular.core.publication import is_public_address

_SECRET_NAMES = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD)(_|$)", re.IGNORECASE)
_MIN_SECRET = 16  # characters; a shorter value, such as "disabled", is not a key
_MIN_SERVER_KEY = 8  # characters of the key of a server; "EMPTY" and "none" are none


def check_nothing_private(folder: Path, roots: list[Path], sources: list[str], key_names: list[str]) -> list[str]:
    """Raise UserError, with the file, if a file in `folder` contains a private text.

    Args:
        roots: Directories of this machine, below which no path may be named.
        sources: Paths and addresses of models: absolute paths and private addresses may not be named.
        key_names: Environment variables with the keys of servers, whatever their names.

    Returns:
        Those of `key_names` that were not searched for: not set, or too short to be a key.
    """
    texts = _paths(roots, sources) | _addresses(sources) | _secrets(key_names)
    forms = {form: name for text, name in texts.items() for form in _forms(text)}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for part in _contents(path, max(map(len, forms), default=0)):
            for form, name in forms.items():
                if form in part:
                    raise UserError(f"{path.relative_to(folder)}: contains {name}. Nothing is published; {_ADVICE}.")
    return [name for name in key_names if len(os.environ.get(name, "").strip()) < _MIN_SERVER_KEY]


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


def _secrets(key_names: list[str]) -> dict[str, str]:
    """Return {value: description} of keys: of servers, of the Hub, and in environment variables named like keys."""
    values = {
        value.strip(): f"the value of the environment variable {name}"
        for name, value in os.environ.items()
        if len(value.strip()) >= (_MIN_SERVER_KEY if name in key_names else _MIN_SECRET)
        and (name in key_names or _SECRET_NAMES.search(name))
    }
    token = get_token()  # also from the file that `hf auth login` writes
    return {token: "the token of the Hub"} | values if token else values


def _forms(text: str) -> set[bytes]:
    """Return a text as it is, and as it is escaped in JSON, XML and CSV."""
    variants = {text, json.dumps(text)[1:-1], json.dumps(text).replace("/", "\\/")[1:-1], text.replace('"', '""')}
    variants |= {html.escape(text), html.escape(text, quote=False), json.dumps(text, ensure_ascii=False)[1:-1]}
    forms = {variant.encode("utf-8", "surrogatepass") for variant in variants}
    return forms | {html.escape(text, quote=False).encode("ascii", "xmlcharrefreplace")}  # as openpyxl does


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
