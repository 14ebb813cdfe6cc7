"""Evaluations with their prompt, and the fields that identify one.

These are not in `types`, which is in the keys of all stored outputs: a prompt reaches a model as the text of a request.
"""

from dataclasses import dataclass

from vernacular import types

DEFAULT_PROMPT, ALL_PROMPTS = "default", "all"  # all: the mean over several prompts, in tables
SETTING = (*types.SETTING, "prompt")  # the fields that identify an evaluation


@dataclass(frozen=True)
class Evaluation(types.Evaluation):
    """One evaluation: task × language × protocol × shots × seed × style × prompt, with its protocol options."""

    prompt: str = DEFAULT_PROMPT

    @property
    def id(self) -> str:
        """The ID, a file name: `belebele.gl.letters.5shot`, plus `.seed1`, `.open` and `.formal` if not the default."""
        return super().id + (f".{self.prompt}" if self.prompt != DEFAULT_PROMPT else "")
