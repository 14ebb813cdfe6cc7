"""Checkpoints of a series that were deleted after they had been evaluated, which is usual while a model is trained.

Their results remain. Only local ones count: a revision on the Hub can be downloaded again.
"""

from pathlib import Path

from vernacular.checkpoints.inputs import is_path
from vernacular.core.metadata import Outcome, not_applicable
from vernacular.types import ModelRecord

DELETED = "of a deleted checkpoint"  # how an inference job completed an evaluation
REASON = "the checkpoint was deleted before this evaluation"


def is_deleted(record: ModelRecord) -> bool:
    """Return whether the directory or file of a recorded local checkpoint, or of an adapter, no longer exists."""
    adapter, listing = record.get("adapter"), _listing(record)
    source = adapter["source"] if adapter else record.get("source") or ""
    return bool(listing) and is_path(source) and not Path(listing["root"]).exists()


def deleted(record: ModelRecord) -> Outcome:
    """Return the outcome of an evaluation of a deleted checkpoint: it is tried again if the checkpoint exists again."""
    return not_applicable(REASON, awaits=_listing(record)["root"])


def _listing(record: ModelRecord) -> dict | None:
    adapter = record.get("adapter")
    return adapter["contents"] if adapter else record.get("source_contents") or record.get("contents")
