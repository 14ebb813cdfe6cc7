"""Checkpoints of a series that were deleted after they had been evaluated, which is usual while a model is trained.

Their results remain. Only local ones count: a revision on the Hub can be downloaded again.
"""

from pathlib import Path

from vernacular.checkpoints.inputs import is_path
from vernacular.types import ModelRecord

DELETED = "of a deleted checkpoint"  # how an inference job completed an evaluation
REASON = "the checkpoint was deleted before this evaluation"


def is_deleted(record: ModelRecord) -> bool:
    """Return whether the directory or file of a recorded local checkpoint, or of an adapter, no longer exists."""
    adapter = record.get("adapter")
    listing = adapter["contents"] if adapter else record.get("source_contents") or record.get("contents")
    source = adapter["source"] if adapter else record.get("source") or ""
    return bool(listing) and is_path(source) and not Path(listing["root"]).exists()
