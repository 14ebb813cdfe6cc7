"""Downloads of Hugging Face Hub repositories at one commit, and of single files by URL, verified by their SHA-256.

`huggingface_hub` downloads repositories: it resumes, stores only complete files, reads cached files without a network,
and takes the token from the environment or HF_HOME. This module adds a time limit, retries of transient failures, and
one error message per cause. A file by URL is stored once in the Hub's assets cache.
"""

import http.client
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import huggingface_hub
from huggingface_hub import cached_assets_path, constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import tqdm
from huggingface_hub.utils._http import default_client_factory

from vernacular.core.artifacts import replacing
from vernacular.core.errors import DataError, ModelError, UserError
from vernacular.core.fingerprint import file_fingerprint, fingerprint
from vernacular.core.paths import rerun_command
from vernacular.core.processes import completed

if huggingface_hub.__version__.startswith("1."):  # as transformers 5.8 requires
    import httpx
else:
    import httpx2 as httpx

TransportError = httpx.TransportError  # of requests to the Hub
_ATTEMPTS = 4
_FIRST_WAIT = 1  # seconds, doubled after each attempt
_TIMEOUT = 30  # seconds without a byte
_TRANSIENT = (408, 429, 500, 502, 503, 504)  # HTTP statuses of failures that often disappear within seconds


def snapshot(
    repository: str,
    revision: str | None,
    patterns: list[str],
    *,
    repo_type: str = "model",
    error_class: type[UserError] = ModelError,
    missing_file_error: type[UserError] = ModelError,
) -> Path:
    """Return the directory of a repository's snapshot, named after its commit, with the files that match `patterns`.

    `repo_type`: "dataset" or "model". Raises `missing_file_error` for a named file that it lacks, otherwise
    `error_class`.
    """
    huggingface_hub.set_client_factory(_client)
    noun, stage = ("dataset", "items") if repo_type == "dataset" else ("model", "model")
    page_url = f"{constants.ENDPOINT}/{'datasets/' if repo_type == 'dataset' else ''}{repository}"
    attempt = 1
    while True:
        try:
            return _interruptible(
                huggingface_hub.snapshot_download,
                repository, repo_type=repo_type, revision=revision, allow_patterns=patterns, tqdm_class=_ProgressBar,
            )  # fmt: skip
        except GatedRepoError:
            advice = f"Accept the terms at {page_url} and set HF_TOKEN (or run `hf auth login`)."
            raise error_class(f"{repository}: access is gated. {advice}") from None
        except RevisionNotFoundError:
            raise error_class(f'{repository}: revision "{revision}" not found on the Hub.') from None
        except RepositoryNotFoundError:
            advice = f"Check the spelling; for a private {noun}, set HF_TOKEN to a token with read access."
            raise error_class(f"{repository}: not found on the Hub, or private. {advice}") from None
        except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
            if not _is_transient(error.__cause__) or attempt == _ATTEMPTS:
                problem = f"not in the local cache, and the Hub cannot be reached ({_describe_cause(error)})"
                advice = f"Fetch it on a machine with internet access: `{rerun_command(f'--until {stage}')}`."
                raise error_class(f"{repository}: {problem}. {advice}") from None
        except EntryNotFoundError:
            raise missing_file_error(
                f"{repository}: file not found in the repository ({', '.join(patterns)})."
            ) from None
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status in (401, 403):
                advice = f"Check that HF_TOKEN is valid and has read access to {page_url}."
                raise error_class(f"{repository}: the Hub denied access (HTTP {status}). {advice}") from None
            if not _is_transient(error) or attempt == _ATTEMPTS:
                raise error_class(f"{repository}: the Hub returned HTTP {status}; run again later.") from None
        except (TransportError, OSError) as error:
            if attempt == _ATTEMPTS:
                reason = getattr(error, "strerror", None) or type(error).__name__
                raise error_class(f"{repository}: the download failed ({reason}); run again to resume it.") from None
        except (UnicodeEncodeError, ValueError) as error:
            # the message of such an error may contain the header, and therefore the token
            cause = type(error).__name__
            message = f"{repository}: the request could not be sent ({cause}). Check that HF_TOKEN is a valid token."
            raise error_class(message) from None
        time.sleep(_FIRST_WAIT * 2 ** (attempt - 1))
        attempt += 1


def cached(source: str) -> Path | None:
    """Return where model `owner/name[/file][@revision]` is in the Hub's cache, perhaps in part; None if it is not."""
    repository, _, revision = source.partition("@")
    owner, name, *file = repository.split("/", 2)
    try:
        options = {"revision": revision or None, "local_files_only": True}
        directory = huggingface_hub.snapshot_download(f"{owner}/{name}", **options)
    except (LocalEntryNotFoundError, OSError, ValueError):
        return None
    path = Path(directory, *file)
    return path if path.exists() else None


class _ProgressBar(tqdm):
    """Progress bar that moves the cursor, which texts may not (`Escaped`)."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, file=getattr(sys.stderr, "unescaped", sys.stderr), **kwargs)


def _interruptible(download, *args, **kwargs) -> Path:
    """Return the directory that `download` returns, and let Ctrl-C take effect before current files are complete.

    Its threads continue until the process ends, which must not wait for them either (__main__.py).
    """
    pool = ThreadPoolExecutor(1)
    try:
        future = pool.submit(download, *args, **kwargs)
        completed([future])
        return Path(future.result())
    except KeyboardInterrupt:
        print(file=sys.stderr)  # end the line of the progress bar
        raise
    finally:
        pool.shutdown(wait=False)


def _client() -> httpx.Client:
    """Return the Hub's default client with a time limit on requests, so that a stalled server does not block it."""
    client = default_client_factory()

    def limit_time(request: httpx.Request) -> None:
        # per request: huggingface_hub passes "no limit" explicitly, which overrides the client's default
        limits, phases = request.extensions.get("timeout") or {}, ("connect", "read", "write", "pool")
        request.extensions["timeout"] = {phase: limits.get(phase) or _TIMEOUT for phase in phases}

    client.event_hooks["request"].append(limit_time)
    return client


def _is_transient(error) -> bool:
    """Return whether a failure is transient, so that a retry within seconds may succeed."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in _TRANSIENT
    return isinstance(error, httpx.TimeoutException | httpx.RemoteProtocolError | httpx.ReadError)


def _describe_cause(error) -> str:
    cause = error.__cause__
    if isinstance(cause, HfHubHTTPError):
        return f"HTTP {cause.response.status_code}"
    if isinstance(error, OfflineModeIsEnabled) or isinstance(cause, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    return type(cause or error).__name__


def fetch(url: str, sha256: str | None, *, stage: str = "items", pin: str = "the task file") -> tuple[Path, str]:
    """Return (path on disk, SHA-256) of the file at `url`, downloaded unless it is in the cache.

    `stage` fetches it, and `pin` states its SHA-256, for messages. Raises DataError if the download fails or has
    another.
    """
    directory = cached_assets_path("vernacular", namespace="web", subfolder=fingerprint(url)[:16])
    path = directory / (Path(urlsplit(url).path).name or "file")
    if path.exists():
        digest = file_fingerprint(path)
        if sha256 in (None, digest):
            return path, digest
    with replacing(path) as temporary:
        _download(url, temporary, stage)
        digest = file_fingerprint(temporary)
        if sha256 not in (None, digest):
            raise DataError(
                f"{url}: checksum mismatch (expected sha256 {sha256} as in {pin}, got {digest}).\n"
                f"The file changed upstream or the download is damaged; check it, then correct sha256 in {pin}."
            )
    return path, digest


def _download(url: str, path: Path, stage: str) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
                data = response.read()  # raises IncompleteRead if the connection drops
            path.write_bytes(data)
            return
        except urllib.error.HTTPError as error:
            if error.code not in _TRANSIENT or attempt == _ATTEMPTS:
                raise DataError(f"{url}: the server returned HTTP {error.code} ({error.reason}).") from None
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            if attempt == _ATTEMPTS:
                reason = getattr(error, "reason", None) or type(error).__name__
                advice = f"Fetch it on a machine with internet access: `{rerun_command(f'--until {stage}')}`."
                raise DataError(f"{url}: the download failed ({reason}). {advice}") from None
        time.sleep(_FIRST_WAIT * 2 ** (attempt - 1))
