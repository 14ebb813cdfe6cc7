"""Parquet artifacts: one writer and reader, with schema checks, atomic writes and provenance in the file metadata.

The metadata of every artifact has a JSON object under the key `vernacular`: its `kind`, its `path_suffix` (the last
components of its path), its `outcome`, the `fingerprint` of its inputs, and the provenance that its stage adds.
SHA-256 digests cover all bytes and are verified before the bytes are parsed, so that a damaged file, or one moved to
the path of another artifact, is rejected with an error that names it.

The digests are stored in the footer of the file itself. Parquet's page checksums cover neither the page headers nor the
footer: of the 89,808 single-bit flips of one 11 KB scores file, ten were read as different rows. A footer written by
this workflow contains a text of 128 hex digits: the SHA-256 of the footer (with zeros for these 64 digits), then that
of everything before it. They are written as zeros and replaced when the file is complete.
"""

import contextlib
import hashlib
import json
import os
import re
import stat
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vernacular.core.errors import ArtifactError, RowsError, first_line, writing
from vernacular.core.fingerprint import fingerprint
from vernacular.core.metadata import Metadata, Outcome, decode, encode

_DIGITS = 64
_ZEROS = b"0" * _DIGITS
_DIGEST_KEY = b"vernacular-digests"
_MARKER = _DIGEST_KEY + b"\x18\x80\x01"  # followed by Thrift's header of a string of 128 bytes
_MAGIC = b"PAR1"
_TAIL = 8  # bytes: the length of the footer, and the magic number
_GUESS = 1 << 16  # bytes: more than most footers
_CHUNK = 1 << 20

PLACEHOLDER = {_DIGEST_KEY: 2 * _ZEROS}  # key-value metadata required by `seal`


_UNREADABLE = (pa.ArrowException, OSError, ValueError)  # ValueError: DamagedError, names that are not UTF-8
ROWS_PER_GROUP = 5_000  # rows of a Parquet row group, whatever the stage: only so many are converted at a time
# bytes of the metadata; the limits of pyarrow, 100 MB and a million elements, are for files of unknown origin, and the
# digests of these are verified first
METADATA_LIMIT = 2**31 - 1
_KEY = b"vernacular"
_OWN_KEYS = ("kind", "store_key")  # in no class of metadata


@dataclass(frozen=True, eq=False)
class Kind:
    """Schema of one kind of artifact: its name, its columns, and the columns that identify a row."""

    name: str
    columns: Iterable[pa.Field | tuple[str, pa.DataType]]
    key: tuple[str, ...]  # unique in combination; () if rows have no identity
    required: tuple[str, ...] = ()  # non-nullable columns in addition to the key
    metadata: type[Metadata] | None = None  # its class of metadata; None: a dict
    path_depth: int = 1  # number of last path components that identify it: 3 for tiny/scores/openbookqa.gl….parquet
    is_public: bool = False  # read for years: a file of an earlier version may lack columns, which are empty then

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema(self.columns)


def write(path, kind: Kind, rows, metadata: Metadata | dict) -> Path:
    """Write `rows` (dicts, or a table) as an artifact, atomically and with fsync; `metadata`: of its class, or a dict.

    Raises RowsError if rows do not fit the schema or a key repeats, and WriteError if the file system rejects the file.
    """
    content = {"outcome": Outcome(), **metadata} if isinstance(metadata, dict) else encode(metadata)
    content |= {"kind": kind.name, "path_suffix": _path_suffix(path, kind.path_depth)}
    text = json.dumps(content, ensure_ascii=False, sort_keys=True, default=encode)
    encoded = text.encode("utf-8", "backslashreplace")
    keys = []
    with replacing(path) as temporary:
        with pq.ParquetWriter(temporary, kind.schema, compression="zstd", write_page_checksum=True) as writer:
            writer.add_key_value_metadata({_KEY: encoded, **PLACEHOLDER})
            # in tables of limited size: as one, repeated few-shot examples would exhaust the memory
            starts = range(0, max(len(rows), 1), ROWS_PER_GROUP)
            for table in (_as_table(rows[start : start + ROWS_PER_GROUP], kind) for start in starts):
                for name in (*kind.key, *kind.required):
                    if table.column(name).null_count:
                        raise RowsError(f"{path}: column {name} of a {kind.name} file has empty values.")
                writer.write_table(table)
                keys.append(table.select(list(kind.key)))
        if kind.key:
            all_keys = pa.concat_tables(keys)
            if all_keys.group_by(list(kind.key)).aggregate([]).num_rows != all_keys.num_rows:
                raise RowsError(f"{path}: {' + '.join(kind.key)} is not unique in this {kind.name} file.")
        seal(temporary)
    return Path(path)


def read(
    path,
    kind: Kind,
    *,
    allow_moved: bool = False,
    columns: list[str] | None = None,
    dictionary_columns: tuple[str, ...] = (),
) -> pa.Table:
    """Read the rows of an artifact, of which `dictionary_columns` are dictionary arrays, at any depth.

    `allow_moved`: accept one that was moved. Raises ArtifactError if the file is missing, damaged, or of another kind,
    schema or place.
    """
    with _open_artifact(path) as file:
        footer = checked_footer(file)
        parsed = _parse(_footer_only(footer), path)
        stored = _parse_metadata(parsed.metadata, path, allow_moved)
        _check_kind(stored, kind, path)
        if (difference := _difference(parsed.schema_arrow, kind)) is not None:
            raise ArtifactError(f"{path}: a {kind.name} file from another version{difference}; delete it to rebuild.")
        check_body(file, footer)
        file.seek(0)
        parquet = _parse(file, path)
        with _intact(path):
            if kind.is_public:
                return _complete(parquet.read(columns), kind, columns)
            if not dictionary_columns or not parquet.num_row_groups:
                return parquet.read(columns)
            # not by `read_dictionary`, which pyarrow does not implement for nested columns of several row groups
            groups = (parquet.read_row_group(group, columns) for group in range(parquet.num_row_groups))
            return pa.concat_tables([_with_dictionaries(group, dictionary_columns) for group in groups])


def _difference(stored: pa.Schema, kind: Kind) -> str | None:
    """Return how the columns of a file differ from those of its kind, to be appended; None if it can be read."""
    stored = stored.remove_metadata()
    if stored.equals(kind.schema):
        return None
    if not kind.is_public:
        return ""
    needed = {*kind.key, *kind.required}
    parts = {
        "unknown columns": [name for name in stored.names if name not in kind.schema.names],
        "columns of another type": [
            f.name for f in kind.schema if f.name in stored.names and f != stored.field(f.name)
        ],
        "missing columns": [name for name in kind.schema.names if name in needed and name not in stored.names],
    }
    found = [f"{title} {', '.join(names)}" for title, names in parts.items() if names]
    return f" ({'; '.join(found)})" if found else None


def _complete(table: pa.Table, kind: Kind, columns: list[str] | None) -> pa.Table:
    """Return a table with the columns of its kind that are read; those that an earlier version lacked are empty."""
    fields = [f for f in kind.schema if columns is None or f.name in columns]
    arrays = [table.column(f.name) if f.name in table.column_names else pa.nulls(len(table), f.type) for f in fields]
    return pa.table(arrays, schema=pa.schema(fields, metadata=table.schema.metadata))


def read_all(path, kind: Kind, **kwargs) -> tuple[pa.Table, Metadata]:
    """Return the rows and the metadata of an artifact; see `read` for arguments and errors."""
    return read(path, kind, **kwargs), metadata(path, kind, allow_moved=kwargs.get("allow_moved", False))


def metadata(path, kind: Kind | None = None, *, allow_moved: bool = False):
    """Return the metadata of an artifact without its rows: of the class of `kind`, if it has one, else a dict."""
    with _open_artifact(path) as file:
        parquet = _parse(_footer_only(checked_footer(file)), path)
        stored = _parse_metadata(parquet.metadata, path, allow_moved)
    return stored if kind is None else typed(stored, kind, path)


def with_metadata(table: pa.Table, kind: Kind, metadata: Metadata) -> pa.Table:
    """Return rows with metadata, as `read` does."""
    return table.replace_schema_metadata({_KEY: json.dumps({"kind": kind.name} | encode(metadata))})


def metadata_of(table: pa.Table, kind: Kind):
    """Return the metadata of rows that were read, of the class of `kind`; None if they have none."""
    if (stored := (table.schema.metadata or {}).get(_KEY)) is None:
        return None
    return typed({name: value for name, value in json.loads(stored).items() if name != "path_suffix"}, kind, "rows")


def typed(stored: dict, kind: Kind, path) -> Metadata | dict:
    """Return stored metadata as those of `kind`; see `metadata`."""
    _check_kind(stored, kind, path)
    if kind.metadata is None:
        return stored
    try:
        return decode(kind.metadata, {name: value for name, value in stored.items() if name not in _OWN_KEYS})
    except (TypeError, LookupError, AttributeError):
        raise ArtifactError(
            f"{path}: metadata of a {kind.name} file from another version; delete it to rebuild."
        ) from None


def _check_kind(stored: dict, kind: Kind, path) -> None:
    if stored.get("kind") != kind.name:
        raise ArtifactError(f"{path}: expected {kind.name!r}, got {stored.get('kind')!r}; delete it to rebuild.")


def check_input_fingerprint(path, actual: str | None, expected: str, noun: str) -> None:
    """Raise ArtifactError unless a file's inputs (`noun`: items, requests, …) are the current ones."""
    if actual != expected:
        raise ArtifactError(f"{path}: computed from other {noun} than the current ones; delete it to rebuild.")


def input_fingerprint(*parts) -> str:
    """Return the fingerprint of an artifact's inputs: JSON-like values, and artifacts (paths) by their fingerprints."""
    return fingerprint([metadata(part)["fingerprint"] if isinstance(part, Path) else part for part in parts])


def _as_table(rows, kind: Kind) -> pa.Table:
    if isinstance(rows, pa.Table):
        try:
            return rows.select(kind.schema.names).cast(kind.schema)
        except (KeyError, pa.ArrowException, ValueError) as error:
            raise RowsError(f"rows do not fit the {kind.name} schema: {error}") from None
    known = set(kind.schema.names)
    for row in rows:
        if extra := set(row) - known:
            raise RowsError(f"rows do not fit the {kind.name} schema: unknown column {sorted(extra)[0]}.")
    try:
        return pa.Table.from_pylist(rows, schema=kind.schema)
    except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError) as error:
        raise RowsError(f"rows do not fit the {kind.name} schema: {error}") from None


def _with_dictionaries(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Return a row group with the texts of the columns `names` as dictionary arrays."""
    for name in set(names) & set(table.column_names):
        index = table.column_names.index(name)
        encoded = [_dictionary_encoded(chunk) for chunk in table.column(name).chunks]
        table = table.set_column(index, name, encoded)
    return table


def _dictionary_encoded(array: pa.Array) -> pa.Array:
    """Return an array with all its texts, also those in lists and structs, as dictionary arrays.

    >>> _dictionary_encoded(pa.array([["a", "a"], None, []])).to_pylist()
    [['a', 'a'], None, []]
    """
    if pa.types.is_string(array.type):
        return array.dictionary_encode()
    if pa.types.is_list(array.type):
        values = _dictionary_encoded(array.values)
        return pa.ListArray.from_arrays(array.offsets, values, mask=array.is_null() if array.null_count else None)
    if pa.types.is_struct(array.type):
        fields = [_dictionary_encoded(array.field(index)) for index in range(array.type.num_fields)]
        names = [field.name for field in array.type]
        return pa.StructArray.from_arrays(fields, names, mask=array.is_null() if array.null_count else None)
    return array


@contextlib.contextmanager
def _open_artifact(path):
    """Open an artifact; raise read errors inside the block, except out of memory, as ArtifactError with the path."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe blocks until it has a writer
            raise ArtifactError(f"{path}: is not a file; delete it to rebuild.")
        with pa.OSFile(str(path)) as file:
            yield file
    except FileNotFoundError:
        raise ArtifactError(f"{path}: file not found.") from None
    except UnsealedError as error:
        raise ArtifactError(
            f"{path}: from another version, or not a file of this workflow ({error}); delete it to rebuild."
        ) from None
    except PermissionError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror}).") from None
    except pa.ArrowMemoryError:
        raise
    except _UNREADABLE as error:
        raise ArtifactError(f"{path}: damaged or not Parquet ({first_line(error)}); delete it to rebuild.") from None


def _parse(verified, path) -> pq.ParquetFile:
    """Open a Parquet file, or a footer, whose bytes are those that were written."""
    limits = {"thrift_string_size_limit": METADATA_LIMIT, "thrift_container_size_limit": METADATA_LIMIT}
    with _intact(path, (pa.ArrowException, OSError)):  # OSError: metadata beyond the limit
        # pq.read_table would import pandas: a third of a second for each process
        return pq.ParquetFile(verified, page_checksum_verification=True, **limits)


@contextlib.contextmanager
def _intact(path, errors=pa.ArrowException):
    """Raise what pyarrow cannot read, of a file whose digests are correct, as ArtifactError with the path."""
    try:
        yield
    except pa.ArrowMemoryError:
        raise
    except errors as error:
        raise ArtifactError(
            f"{path}: its content is intact, but pyarrow {pa.__version__} cannot read it ({first_line(error)})."
        ) from error


def _footer_only(footer: bytes) -> pa.BufferReader:
    """Return a Parquet file that consists of a verified footer only, so that no unverified byte is parsed."""
    return pa.BufferReader(b"PAR1" + footer)


def _parse_metadata(parquet: pq.FileMetaData, path, allow_moved: bool) -> dict:
    text = (parquet.metadata or {}).get(_KEY)
    if text is None:
        raise ArtifactError(f"{path}: not a file of this workflow (no provenance in its metadata).")
    try:  # a file of another group may be sealed, and contain anything
        stored = dict(json.loads(text))
        recorded_path = stored.pop("path_suffix")
        parts = Path(recorded_path).parts
        outcome = stored.get("outcome")
        stored["outcome"] = Outcome(**(outcome or {}))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ArtifactError(f"{path}: not a file of this workflow (its metadata is not valid).") from None
    if not allow_moved and recorded_path != _path_suffix(path, len(parts)):
        raise ArtifactError(f"{path}: moved or copied from {recorded_path}; delete it to rebuild.")
    if outcome is None and not allow_moved:  # files of others may be older: only what has rows is used of them
        raise ArtifactError(f"{path}: from another version of the workflow; delete it to rebuild.")
    return stored


def _path_suffix(path, count: int) -> str:
    return "/".join(Path(path).absolute().parts[-count:])


class DamagedError(ValueError):
    """Mismatch between a file and its digests; the message is the reason, without the path."""


class UnsealedError(DamagedError):
    """Parquet file without digests, written by another program or another version."""


def seal(path: Path) -> None:
    """Write the digests into a complete Parquet file that has the key-value metadata `PLACEHOLDER`."""
    with pa.OSFile(str(path)) as file:
        footer, start = _footer(file)
        digest = _digest_of_body(file, start)
    offset = _digest_offset(footer)
    footer = footer[: offset + _DIGITS] + digest + footer[offset + 2 * _DIGITS :]
    with open(path, "r+b") as file:
        file.seek(start + offset)
        file.write(_digest_of_footer(footer, offset) + digest)


def checked_footer(file: pa.NativeFile) -> bytes:
    """Return the verified footer of a sealed file with what follows it; raise DamagedError or UnsealedError."""
    footer, _ = _footer(file)
    offset = _digest_offset(footer)
    if footer[offset : offset + _DIGITS] != _digest_of_footer(footer, offset):
        raise DamagedError("its footer differs from its SHA-256")
    return footer


def check_body(file: pa.NativeFile, footer: bytes) -> None:
    """Raise DamagedError if the bytes before the verified `footer` differ from the digest in it."""
    offset = _digest_offset(footer) + _DIGITS
    if _digest_of_body(file, file.size() - len(footer)) != footer[offset : offset + _DIGITS]:
        raise DamagedError("its rows differ from their SHA-256")


def _footer(file: pa.NativeFile) -> tuple[bytes, int]:
    """Return (the footer with the length and the magic number after it, its offset)."""
    size = file.size()
    tail = file.read_at(min(size, _GUESS), size - min(size, _GUESS))
    if len(tail) < _TAIL or not tail.endswith(_MAGIC):
        raise DamagedError("it does not end as a Parquet file")
    length = int.from_bytes(tail[-_TAIL:-4], "little") + _TAIL
    if length > size - len(_MAGIC):
        raise DamagedError("its footer would be longer than the file")
    return file.read_at(length, size - length) if length > len(tail) else tail[-length:], size - length


def _digest_offset(footer: bytes) -> int:
    """Return the offset of the digests: after the last mark, since statistics, which hold texts of rows, precede it."""
    offset = footer.rfind(_MARKER)
    if offset < 0 or offset + len(_MARKER) + 2 * _DIGITS > len(footer):
        raise UnsealedError("it has no digests in its footer")
    return offset + len(_MARKER)


def _digest_of_footer(footer: bytes, offset: int) -> bytes:
    return hashlib.sha256(footer[:offset] + _ZEROS + footer[offset + _DIGITS :]).hexdigest().encode()


def _digest_of_body(file: pa.NativeFile, length: int) -> bytes:
    digest = hashlib.sha256()
    file.seek(0)
    while length:
        chunk = file.read(min(length, _CHUNK))
        if not chunk:
            raise DamagedError("it became shorter while it was read")
        digest.update(chunk)
        length -= len(chunk)
    return digest.hexdigest().encode()


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path next to `path`; on success fsync it and rename it to `path`, on failure remove it.

    Its name is unique, so that hosts, processes and threads may write one path. Raises WriteError.
    """
    path = Path(path)
    host = re.sub(r"[^\w-]", "-", os.uname().nodename, flags=re.ASCII)[:40]
    unique = f"{host}.{os.getpid()}.{uuid.uuid4().hex[:16]}"
    temporary = path.with_name(f".{path.name[:40]}.{unique}.tmp")  # file names are limited to 255 bytes
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path, text: str) -> None:
    """Write a text file, as `replacing` does."""
    with replacing(path) as temporary:
        temporary.write_text(text, "utf-8")
