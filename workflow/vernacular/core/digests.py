"""Digests of a Parquet file in its own footer: damage of any byte is found before any of it is parsed.

Parquet's page checksums cover neither the headers of pages nor the footer: of the 89,808 single-bit flips of one scores
file of 11 KB, ten were read as other rows. A footer written by this workflow ends in a text of 128 hex digits: the
SHA-256 of the footer (without these 64 digits), then that of everything before it. They are written as zeros and set in
place when the file is complete. The footer alone is checked in microseconds; the rest at the speed of SHA-256, of which
most processors have instructions (930 MB/s measured, against 570 MB/s for BLAKE2b).
"""

import hashlib
from pathlib import Path

import pyarrow as pa

_DIGITS = 64
_BLANK = b"0" * _DIGITS
_KEY = b"vernacular-digests"
_MARK = _KEY + b"\x18\x80\x01"  # Thrift: a text follows, of 128 bytes
_MAGIC = b"PAR1"
_TAIL = 8  # the length of the footer, and the magic
_GUESS = 1 << 16  # bytes: most footers are shorter
_CHUNK = 1 << 20

BLANK = {_KEY: 2 * _BLANK}  # the key-value metadata of a file that is going to be sealed


class DamagedError(ValueError):
    """A file differs from its digests; the message is the reason, without the path."""


class UnsealedError(DamagedError):
    """A Parquet file without digests: another program or another version wrote it."""


def seal(path: Path) -> None:
    """Set the digests of a complete Parquet file that was written with the key-value metadata `BLANK`."""
    with pa.OSFile(str(path)) as file:
        footer, start = _footer(file)
        digest = _digest_of_body(file, start)
    at = _place(footer)
    footer = footer[: at + _DIGITS] + digest + footer[at + 2 * _DIGITS :]
    with open(path, "r+b") as file:
        file.seek(start + at)
        file.write(_digest_of_footer(footer, at) + digest)


def checked_footer(file: pa.NativeFile) -> bytes:
    """Return the footer of a sealed Parquet file, with the length and the magic that follow it.

    Raises:
        DamagedError: it differs from its digest, or this is not a Parquet file.
        UnsealedError: the file has no digests.
    """
    footer, _ = _footer(file)
    at = _place(footer)
    if footer[at : at + _DIGITS] != _digest_of_footer(footer, at):
        raise DamagedError("its footer differs from its SHA-256")
    return footer


def check_body(file: pa.NativeFile, footer: bytes) -> None:
    """Raise DamagedError if what precedes the `footer`, which is checked, differs from the digest in it."""
    at = _place(footer) + _DIGITS
    if _digest_of_body(file, file.size() - len(footer)) != footer[at : at + _DIGITS]:
        raise DamagedError("its rows differ from their SHA-256")


def _footer(file: pa.NativeFile) -> tuple[bytes, int]:
    """(the footer and what follows it, where it starts)."""
    size = file.size()
    tail = file.read_at(min(size, _GUESS), size - min(size, _GUESS))
    if len(tail) < _TAIL or not tail.endswith(_MAGIC):
        raise DamagedError("it does not end as a Parquet file")
    length = int.from_bytes(tail[-_TAIL:-4], "little") + _TAIL
    if length > size - len(_MAGIC):
        raise DamagedError("its footer would be longer than the file")
    return file.read_at(length, size - length) if length > len(tail) else tail[-length:], size - length


def _place(footer: bytes) -> int:
    """Where the digests start: after the last mark, since texts from the rows (statistics) come before."""
    at = footer.rfind(_MARK)
    if at < 0 or at + len(_MARK) + 2 * _DIGITS > len(footer):
        raise UnsealedError("it has no digests in its footer")
    return at + len(_MARK)


def _digest_of_footer(footer: bytes, at: int) -> bytes:
    return hashlib.sha256(footer[:at] + _BLANK + footer[at + _DIGITS :]).hexdigest().encode()


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
