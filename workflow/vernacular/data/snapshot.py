"""Files of a data set repository on the Hugging Face Hub, at one commit, in the Hub's own cache.

`huggingface_hub` does the work: it resumes, keeps whole files only, reads what is cached without a network, and takes
the token from the environment or HF_HOME. Here is what it lacks: a time limit, another try where the trouble may pass,
and one sentence for each way to fail.
"""

import time
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

from vernacular.data.columns import LayoutError
from vernacular.errors import DataError

_ATTEMPTS = 3
_TIMEOUT = 30  # seconds without a byte


def snapshot(repository: str, revision: str | None, wanted: list[str]) -> Path:
    """Folder of the snapshot, with the `wanted` files (patterns) in it; DataError with the sentence to show."""
    huggingface_hub.set_client_factory(_client)
    page = f"{constants.ENDPOINT}/datasets/{repository}"
    attempt = 1
    while True:
        try:
            return Path(
                huggingface_hub.snapshot_download(
                    repository, repo_type="dataset", revision=revision, allow_patterns=wanted
                )
            )
        except GatedRepoError:
            raise DataError(
                f"{repository}: gated. Accept its terms at {page}, then set HF_TOKEN (or run `hf auth login`)."
            ) from None
        except RevisionNotFoundError:
            raise DataError(f'{repository}: has no revision "{revision}".') from None
        except RepositoryNotFoundError:
            raise DataError(
                f"{repository}: not on the Hub, or private. Check the spelling; "
                "for a private set, set HF_TOKEN to a token that may read it."
            ) from None
        except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
            if not _may_pass(error.__cause__) or attempt == _ATTEMPTS:
                raise DataError(
                    f"{repository}: not in the local cache, and the Hub cannot be reached ({_why(error)}). "
                    "Fetch it on a machine with internet: `snakemake --until items`."
                ) from None
        except EntryNotFoundError:
            raise LayoutError(f"{repository}: has no such file ({', '.join(wanted)}).") from None
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status in (401, 403):
                raise DataError(
                    f"{repository}: the Hub refuses access ({status}). Is HF_TOKEN right, and may it read {page}?"
                ) from None
            if not _may_pass(error) or attempt == _ATTEMPTS:
                raise DataError(f"{repository}: the Hub answers {status}; try again later.") from None
        except (httpx2.TransportError, OSError) as error:
            if attempt == _ATTEMPTS:
                reason = getattr(error, "strerror", None) or type(error).__name__
                raise DataError(f"{repository}: the download failed ({reason}); run again to go on.") from None
        except (UnicodeEncodeError, ValueError) as error:
            # the text of such an error may hold the header, and so the token
            raise DataError(
                f"{repository}: the request could not be made ({type(error).__name__}); is HF_TOKEN a token?"
            ) from None
        time.sleep(2 ** (attempt - 1))
        attempt += 1


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
