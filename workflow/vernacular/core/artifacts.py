"""The one Parquet writer and reader: schema checked, written whole or not at all, provenance in the metadata.

Every artifact carries a JSON object under the key `vernacular`: its `kind`, its `place` (the end of its path), the
`fingerprint` of what determined it, and whatever provenance its stage adds. Digests of every byte are written and
verified before anything is parsed, so that a damaged file, or one put in another's place, is named and never read.
"""

import contextlib
import json
import os
import re
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vernacular.core import digests
from vernacular.core.errors import ArtifactError, first_line, writing
from vernacular.core.fingerprint import fingerprint

_UNREADABLE = (pa.ArrowException, OSError, ValueError)  # ValueError: names that are no text
_AT_A_TIME = 5_000  # rows
_KEY = b"vernacular"


@dataclass(frozen=True)
class Kind:
    """What an artifact of one kind looks like: its name, its columns, and the columns that identify a row."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]  # unique together; () where a row has no identity
    required: tuple[str, ...] = field(default=())  # columns that may not be null, beside the key
    place: int = 1  # parts at the end of the path that say of what it is: 3 for tiny/scores/openbookqa.gl….parquet


def write(path, kind: Kind, rows, metadata: dict) -> Path:
    """Write `rows` (list of dicts, or a pa.Table) as an artifact of `kind`; atomic, fsynced.

    Raises ArtifactError if a column is unknown, a value does not fit its type, or the key is null or repeated.
    """
    about = {**metadata, "kind": kind.name, "place": _end(path, kind.place)}
    note = json.dumps(about, ensure_ascii=False, sort_keys=True).encode("utf-8", "backslashreplace")
    keys = []
    with replacing(path) as temporary:
        with pq.ParquetWriter(temporary, kind.schema, compression="zstd", write_page_checksum=True) as writer:
            writer.add_key_value_metadata({_KEY: note, **digests.BLANK})
            for table in _tables(rows, kind):
                for name in (*kind.key, *kind.required):
                    if table.column(name).null_count:
                        raise ArtifactError(f"{path}: column {name} of a {kind.name} file has empty values.")
                writer.write_table(table)
                keys.append(table.select(list(kind.key)))
        if kind.key:
            every = pa.concat_tables(keys)
            if every.group_by(list(kind.key)).aggregate([]).num_rows != every.num_rows:
                raise ArtifactError(f"{path}: {' + '.join(kind.key)} is not unique in this {kind.name} file.")
        digests.seal(temporary)
    return Path(path)


def _tables(rows, kind: Kind) -> Iterator[pa.Table]:
    """`rows` as tables of some thousand rows: as one, rows that repeat a few-shot block would fill the memory."""
    if isinstance(rows, pa.Table):
        yield _as_table(rows, kind)
        return
    for start in range(0, max(len(rows), 1), _AT_A_TIME):
        yield _as_table(rows[start : start + _AT_A_TIME], kind)


def read(
    path, kind: Kind, *, anywhere: bool = False, columns: list[str] | None = None, repeated: tuple[str, ...] = ()
) -> pa.Table:
    """Read an artifact; raises ArtifactError naming the file if missing, damaged, or of another kind, schema or place.

    `anywhere`: it may have been moved since it was written. `columns`: those to read, None for all. `repeated`: of the
    texts in these columns ("prefix", "turns.list.element.content", …) each different one is held once, by some thousand
    rows: they come as dictionaries.
    """
    with _opened(path) as file:
        footer = digests.checked_footer(file)
        parsed = pq.ParquetFile(_without_rows(footer))
        found = _note(parsed.metadata, path, anywhere)
        if found.get("kind") != kind.name:
            raise ArtifactError(f"{path}: holds {found.get('kind')!r}, expected {kind.name!r}; delete it to rebuild.")
        if not parsed.schema_arrow.remove_metadata().equals(kind.schema):
            raise ArtifactError(f"{path}: a {kind.name} file from another version; delete it to rebuild.")
        digests.check_body(file, footer)
        file.seek(0)
        how = {"page_checksum_verification": True, "partitioning": None, "read_dictionary": list(repeated)}
        return pq.read_table(file, columns=columns, **how)


def metadata(path, *, anywhere: bool = False) -> dict:
    """The `vernacular` metadata of an artifact, without reading its rows; raises as `read` does."""
    with _opened(path) as file:
        return _note(pq.read_metadata(_without_rows(digests.checked_footer(file))), path, anywhere)


def check_made_of(path, found: str | None, wanted: str, what: str) -> None:
    """Raises ArtifactError unless the file at `path` was made of the `what` (items, requests, …) that is there now."""
    if found != wanted:
        raise ArtifactError(f"{path}: was made of other {what} than there are now; delete it to rebuild.")


def made_of(*parts) -> str:
    """Fingerprint of what determines an artifact: JSON-like values, and artifacts (paths) by their own fingerprints."""
    return fingerprint([metadata(part)["fingerprint"] if isinstance(part, Path) else part for part in parts])


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path next to `path`; on success fsync it and rename it to `path`, on failure remove it.

    The temporary name belongs to one call alone, so that hosts, processes and threads may write one path at a time: a
    reader finds the file of one of them, complete. Raises WriteError, which names `path`, where the disk refuses.
    """
    path = Path(path)
    host = re.sub(r"[^\w-]", "-", os.uname().nodename, flags=re.ASCII)[:40]
    unique = f"{host}.{os.getpid()}.{uuid.uuid4().hex[:16]}"
    temporary = path.with_name(f".{path.name[:40]}.{unique}.tmp")  # a file name holds 255 bytes at most
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _as_table(rows, kind: Kind) -> pa.Table:
    if isinstance(rows, pa.Table):
        try:
            return rows.select(kind.schema.names).cast(kind.schema)
        except (KeyError, pa.ArrowException, ValueError) as error:
            raise ArtifactError(f"rows do not fit the {kind.name} schema: {error}") from None
    known = set(kind.schema.names)
    for row in rows:
        if extra := set(row) - known:
            raise ArtifactError(f"rows do not fit the {kind.name} schema: unknown column {sorted(extra)[0]}")
    try:
        return pa.Table.from_pylist(rows, schema=kind.schema)
    except (pa.ArrowException, TypeError, UnicodeEncodeError) as error:
        raise ArtifactError(f"rows do not fit the {kind.name} schema: {error}") from None


@contextlib.contextmanager
def _opened(path):
    """An artifact, open; what is raised inside, and is no shortage of memory, names the file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # to open a pipe would wait for who writes into it
            raise ArtifactError(f"{path}: is not a file; delete it to rebuild.")
        with pa.OSFile(str(path)) as file:
            yield file
    except FileNotFoundError:
        raise ArtifactError(f"{path}: there is no such file.") from None
    except digests.UnsealedError as error:
        raise ArtifactError(
            f"{path}: from another version, or not a file of this workflow ({error}); delete it to rebuild."
        ) from None
    except PermissionError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror}).") from None
    except pa.ArrowMemoryError:
        raise
    except _UNREADABLE as error:
        raise ArtifactError(f"{path}: damaged or not Parquet ({first_line(error)}); delete it to rebuild.") from None


def _without_rows(footer: bytes) -> pa.BufferReader:
    """A file that consists of the footer: all that is parsed of it has been checked."""
    return pa.BufferReader(b"PAR1" + footer)


def _note(found: pq.FileMetaData, path, anywhere: bool) -> dict:
    text = (found.metadata or {}).get(_KEY)
    if text is None:
        raise ArtifactError(f"{path}: not a file of this workflow (no provenance in its metadata).")
    note = json.loads(text)
    place = note.pop("place")
    if not anywhere and place != _end(path, len(Path(place).parts)):
        raise ArtifactError(f"{path}: holds {place}, which was put in its place; delete it to rebuild.")
    return note


def _end(path, count: int) -> str:
    return "/".join(Path(path).absolute().parts[-count:])
