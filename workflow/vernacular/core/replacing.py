"""Replacement of a file as a whole: readers find the previous content or the new one."""

import contextlib
import os
import re
import uuid
from pathlib import Path

from vernacular.core.errors import writing


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path next to `path`; on success fsync it and rename it to `path`, on failure remove it.

    The temporary name is unique to the call, so that several hosts, processes and threads may write the same path at
    the same time: readers find one complete file.

    Raises:
        WriteError: The file system rejects the file, for example because the disk is full.
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
