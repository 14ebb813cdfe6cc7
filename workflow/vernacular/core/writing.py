"""Refusals of a disk: a file that cannot be written ends its command with one line that names the path.

A full disk, an exceeded quota, a read-only file system, a missing permission and a failing device are the user's to
resolve, and the operating system often reports them without a path. Every other OSError keeps its traceback.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from vernacular.core.errors import UserError

_MAKE_ROOM = "Free some space there and run again."
_ALLOW = "Check the permissions of the directory and of the file system."
_ADVICE = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EFBIG: "Raise the limit of file sizes (ulimit -f) and run again.",
    errno.EROFS: _ALLOW,
    errno.EACCES: _ALLOW,
    errno.EPERM: _ALLOW,
    errno.EIO: "The device reports an error; check it, or write elsewhere.",
}


class WriteError(UserError):
    """A file cannot be written; `reason` is the operating system's."""

    def __init__(self, sentence: str, reason: str = ""):
        super().__init__(sentence)
        self.reason = reason

    def __reduce__(self):
        return type(self), (str(self), self.reason)


def refusal(error: OSError, path=None) -> WriteError | None:
    """Return the error to show for `error`, None where it is not a refusal of the disk or its path is unknown.

    Args:
        path: what was being written; without one, the path that the operating system names.
    """
    path = path or error.filename2 or error.filename
    if error.errno not in _ADVICE or path is None:
        return None
    reason = os.strerror(error.errno)  # the text of pyarrow's errors is longer
    return WriteError(f"{os.fsdecode(path)}: cannot be written ({reason}). {_ADVICE[error.errno]}", reason)


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Raise WriteError, which names `path`, where the disk refuses what is written inside."""
    try:
        yield
    except OSError as error:
        if (refused := refusal(error, path)) is None:
            raise
        raise refused from error
