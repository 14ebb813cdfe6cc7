"""Command `revisions`: list the revisions of each series on the Hub whose config gives a pattern."""

from vernacular.config.files import read
from vernacular.config.series import listing_path
from vernacular.core.errors import format_count
from vernacular.core.hub_revisions import revisions_of
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
