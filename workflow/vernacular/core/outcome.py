"""The outcome of an artifact, which its metadata state: complete, not applicable, or unavailable."""

from dataclasses import dataclass, field
from pathlib import Path

COMPLETE, NOT_APPLICABLE, UNAVAILABLE = "complete", "not applicable", "unavailable"


@dataclass(frozen=True)
class Outcome:
    """Whether an artifact was computed; if not, it has no rows, and neither has what is computed from it."""

    state: str = COMPLETE  # COMPLETE, NOT_APPLICABLE or UNAVAILABLE
    reason: str = ""  # why there are no rows; "" if complete
    awaits: str | None = None  # a deleted checkpoint, without which this is not applicable
    missing: dict[str, str] = field(default_factory=dict)  # parts that a complete artifact lacks: {name: reason}

    @property
    def is_complete(self) -> bool:
        """Whether the artifact was computed, except for the parts that are `missing`."""
        return self.state == COMPLETE

    @property
    def may_try_again(self) -> bool:
        """Whether another run may compute what this one could not."""
        is_back = self.awaits is not None and Path(self.awaits).exists()
        return self.state == UNAVAILABLE or bool(self.missing) or is_back


def unavailable(reason: str) -> Outcome:
    """Return the outcome of what could not be computed, but may be by another run."""
    return Outcome(UNAVAILABLE, reason)


def not_applicable(reason: str, *, awaits: str | None = None) -> Outcome:
    """Return the outcome of what cannot be computed by any run, or by none before `awaits` exists again."""
    return Outcome(NOT_APPLICABLE, reason, awaits)
