"""Files of a repository on the Hugging Face Hub, data set or model, at one commit, in the Hub's own cache.

`huggingface_hub` does the work: it resumes, keeps whole files only, reads what is cached without a network, and takes
the token from the environment or HF_HOME. Here is what it lacks: a time limit, another try where the trouble may pass,
and one sentence for each way to fail.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils._http import default_client_factory

from vernacular.core.errors import UserError

_ATTEMPTS = 3
_TIMEOUT = 30  # seconds without a byte


def snapshot(
    repository: str,
    revision: str | None,
    wanted: list[str],
    *,
    repo_type: str,
    complaint: type[UserError],
    absent: type[UserError],
) -> Path:
    """Folder of the snapshot, with the `wanted` files (patterns) in it; it is called after its commit.

    repo_type: "dataset" or "model". Raises `complaint` with the sentence to show; `absent` where the repository is
    there and a file named in full is not.
    """
    huggingface_hub.set_client_factory(_client)
    noun, stage = ("set", "items") if repo_type == "dataset" else ("model", "model")
    page = f"{constants.ENDPOINT}/{'datasets/' if repo_type == 'dataset' else ''}{repository}"
    attempt = 1
    while True:
        try:
            return _interruptible(
                huggingface_hub.snapshot_download,
                repository, repo_type=repo_type, revision=revision, allow_patterns=wanted,
            )  # fmt: skip
        except GatedRepoError:
            raise complaint(
                f"{repository}: gated. Accept its terms at {page}, then set HF_TOKEN (or run `hf auth login`)."
            ) from None
        except RevisionNotFoundError:
            raise complaint(f'{repository}: has no revision "{revision}".') from None
        except RepositoryNotFoundError:
            raise complaint(
                f"{repository}: not on the Hub, or private. Check the spelling; "
                f"for a private {noun}, set HF_TOKEN to a token that may read it."
            ) from None
        except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
            if not _may_pass(error.__cause__) or attempt == _ATTEMPTS:
                raise complaint(
                    f"{repository}: not in the local cache, and the Hub cannot be reached ({_why(error)}). "
                    f"Fetch it on a machine with internet: `snakemake --until {stage}`."
                ) from None
        except EntryNotFoundError:
            raise absent(f"{repository}: has no such file ({', '.join(wanted)}).") from None
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status in (401, 403):
                raise complaint(
                    f"{repository}: the Hub refuses access ({status}). Is HF_TOKEN right, and may it read {page}?"
                ) from None
            if not _may_pass(error) or attempt == _ATTEMPTS:
                raise complaint(f"{repository}: the Hub answers {status}; try again later.") from None
        except (httpx2.TransportError, OSError) as error:
            if attempt == _ATTEMPTS:
                reason = getattr(error, "strerror", None) or type(error).__name__
                raise complaint(f"{repository}: the download failed ({reason}); run again to go on.") from None
        except (UnicodeEncodeError, ValueError) as error:
            # the text of such an error may hold the header, and so the token
            raise complaint(
                f"{repository}: the request could not be made ({type(error).__name__}); is HF_TOKEN a token?"
            ) from None
        time.sleep(2 ** (attempt - 1))
        attempt += 1


def _interruptible(download, *args, **kwargs) -> Path:
    """The folder that `download` gives. Ctrl-C is heard at once: its own threads would be waited for, until the files
    that they are at are whole.

    Those threads then go on until the process ends, which must not wait for them either (__main__.py).
    """
    pool = ThreadPoolExecutor(1)
    try:
        return Path(pool.submit(download, *args, **kwargs).result())
    except KeyboardInterrupt:
        print(file=sys.stderr)  # after the bar, which stands in the last line
        raise
    finally:
        pool.shutdown(wait=False)


def _client() -> httpx2.Client:
    """The Hub's own client, but one that does not wait for ever on a server that has stopped talking."""
    client = default_client_factory()
    client.event_hooks["request"].append(_limit_time)
    return client


def _limit_time(request: httpx2.Request) -> None:
    # here and not as the client's default, because the Hub's calls pass "no limit" explicitly
    limits = request.extensions.get("timeout") or {}
    request.extensions["timeout"] = {
        phase: limits.get(phase) or _TIMEOUT for phase in ("connect", "read", "write", "pool")
    }


def _may_pass(error) -> bool:
    """Is this the kind of failure that goes away by itself within seconds?"""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in (408, 429, 500, 502, 503, 504)
    return isinstance(error, httpx2.TimeoutException | httpx2.RemoteProtocolError | httpx2.ReadError)


def _why(error) -> str:
    cause = error.__cause__
    if isinstance(cause, HfHubHTTPError):
        return f"it answers {cause.response.status_code}"
    if isinstance(error, OfflineModeIsEnabled) or isinstance(cause, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    return type(cause or error).__name__
