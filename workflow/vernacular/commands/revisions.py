"""Command `revisions`: list the revisions of each series on the Hub whose config gives a pattern."""

import httpx2
import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from vernacular.config.files import read
from vernacular.config.series import listing_path
from vernacular.core.errors import ModelError, first_line, format_count
from vernacular.core.records import write_record


def revisions(args) -> str:
    """Write branches and tags of the repositories with `revisions: PATTERN`; planning reads them without a network."""
    files, counts = read(args.config, None, "--config"), []
    files.problems.raise_all()
    for name, entry in files.values["models"].items():
        if isinstance(entry.get("revisions"), str):
            source = entry["adapter" if "base" in entry else "source"]
            commits = revisions_of(source)
            path = listing_path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_record(path, {"name": name, "source": source, "revisions": commits})
            counts.append(f"{name}: {format_count(len(commits), 'revision')} of {source}")
    return f"revisions: {'; '.join(counts) or 'no series with a pattern of revisions'}"


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
