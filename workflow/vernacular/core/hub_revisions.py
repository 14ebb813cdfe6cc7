"""Branches and tags of a model repository on the Hugging Face Hub, with their commits."""

import httpx2
import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from vernacular.core.errors import ModelError, first_line


def revisions_of(repository: str) -> dict[str, str]:
    """Return the commit of every branch and tag of a model repository, by name.

    Raises:
        ModelError: The repository does not exist or may not be read, or the Hub cannot be reached.
    """
    try:
        refs = huggingface_hub.HfApi().list_repo_refs(repository, repo_type="model")
    except HfHubHTTPError as error:
        reason = f"HTTP {error.response.status_code}" if error.response is not None else first_line(error)
        raise ModelError(
            f"{repository}: revisions cannot be listed ({reason}). Check the spelling; for a private or gated "
            "repository, set HF_TOKEN to a token with read access."
        ) from None
    except (httpx2.TransportError, OfflineModeIsEnabled, OSError) as error:
        raise ModelError(f"{repository}: revisions cannot be listed ({type(error).__name__}).") from None
    return {ref.name: ref.target_commit for ref in (*refs.branches, *refs.tags)}
