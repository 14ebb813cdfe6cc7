"""A data file on the web, fetched once into the Hub's assets cache (under HF_HOME) and checked against its sha256."""

import http.client
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from huggingface_hub import cached_assets_path

from vernacular.core.artifacts import replacing
from vernacular.core.errors import DataError
from vernacular.core.fingerprint import file_fingerprint, fingerprint

_ATTEMPTS = 4
_TIMEOUT = 30  # seconds without a byte
_MAY_PASS = {408, 429, 500, 502, 503, 504}


def fetch(url: str, sha256: str | None) -> tuple[Path, str]:
    """(path on disk, sha256) of the file at `url`; what is there already is not fetched again.

    Raises DataError with the sentence to show; a file that is cut short or has the wrong checksum is never kept.
    """
    folder = cached_assets_path("vernacular", namespace="web", subfolder=fingerprint(url)[:16])
    path = folder / (Path(urlsplit(url).path).name or "file")
    if path.exists():
        found = file_fingerprint(path)
        if sha256 in (None, found):
            return path, found
    with replacing(path) as temporary:
        _download(url, temporary)
        found = file_fingerprint(temporary)
        if sha256 not in (None, found):
            raise DataError(
                f"{url}: wrong checksum (sha256 {found}, the task file says {sha256}).\n"
                "It has changed upstream or was damaged on the way; check it, then correct sha256 in the task file."
            )
    return path, found


def _download(url: str, path: Path) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
                data = answer.read()  # raises IncompleteRead where the connection drops half way
            path.write_bytes(data)
            return
        except urllib.error.HTTPError as error:
            if error.code not in _MAY_PASS or attempt == _ATTEMPTS:
                raise DataError(f"{url}: the server answers {error.code} ({error.reason}).") from None
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            if attempt == _ATTEMPTS:
                reason = getattr(error, "reason", None) or type(error).__name__
                raise DataError(
                    f"{url}: cannot be fetched ({reason}). "
                    "Fetch it on a machine with internet: `snakemake --until items`."
                ) from None
        time.sleep(2 ** (attempt - 1))
