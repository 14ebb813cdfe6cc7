"""Generation with llama.cpp: one text after the other, so that none depends on others; their beginning is read once."""

import numpy as np
import torch

from vernacular.inference.generation.decode import BATCH, Prefix, Way, common_prefix, decode
from vernacular.inference.generation.generate import Generation
from vernacular.inference.generation.prepare import PreparedPrompt
from vernacular.inference.llama.model import SMALLEST, LlamaModel
from vernacular.inference.model.memory import within_memory
from vernacular.inference.schema import Journal

_SHARED, _TEXT = 0, 1  # sequences: the beginning of all prompts, and the text that is generated


class LlamaBatch:
    """One text, in place of a `DecodingBatch`."""

    last_length = None
    can_drop_rows = False

    def __init__(self, loaded: LlamaModel, suffixes: list[list[int]], prefix: Prefix | None, room, counters, way):
        (self.ids,) = suffixes
        self.loaded, self.counters, self.position = loaded, counters, len(prefix.ids) if prefix else 0
        loaded.drop(_TEXT)
        if prefix:
            loaded.share(_SHARED, _TEXT)

    def logits(self) -> torch.Tensor:
        """Read the current tokens; return float32 logits [1, vocabulary] of the next."""
        ids = np.array(self.ids, np.int32)
        logits = self.loaded.read(ids, self.position, _TEXT, np.array([len(ids) - 1]))
        self.position += len(ids)
        self.counters.forwards += 1
        self.counters.tokens_computed += len(ids)
        return torch.from_numpy(logits.copy())

    def append(self, tokens: list[int]) -> None:
        """Set the next token."""
        self.ids = tokens


class LlamaGeneration(Generation):
    """The same as `Generation`, of a GGUF file."""

    engine = "llama.cpp"

    def compute(self, journal: Journal) -> None:
        self.is_read = False  # whether the cache contains the beginning of the group
        super().compute(journal)

    def _limits(self) -> dict[str, int]:
        return {"rows": 1}

    def _run_group(self, prompts: list[PreparedPrompt]) -> None:
        length = min(len(prompt.ids) for prompt in prompts) - SMALLEST  # the rest is a pass of its own
        beginning = common_prefix([prompt.ids for prompt in prompts])[: max(0, length)] if len(prompts) > 1 else []
        if len(beginning) < SMALLEST or self.loaded.depends_on_batch or self.loaded.lengths.varies:
            beginning = []
        self.is_read = False
        self.room = max(len(prompt.ids) + prompt.max_new_tokens for prompt in prompts)
        self.strategies.append({"prompts": len(prompts), "used": "prefix" if beginning else "single"})
        self.prefix_tokens += len(beginning)
        for prompt in sorted(prompts, key=lambda prompt: prompt.request_id):
            if self.loaded.lengths.varies:  # the positions of its own length
                self.is_read, self.room = False, len(prompt.ids) + prompt.max_new_tokens
            self._run_batch([prompt], Prefix(beginning, None) if beginning else None, BATCH)

    def _decode_batch(self, batch: list[PreparedPrompt], prefix: Prefix | None, way: Way) -> list[dict] | None:
        if not self.is_read:
            self.loaded.open_context(self.room)
            if prefix:
                self.loaded.read(np.array(prefix.ids, np.int32), 0, _SHARED, np.zeros(0, np.int64))
                self.counters.tokens_computed += len(prefix.ids)
            self.is_read = True
        return within_memory(self.loaded, decode, self.loaded, batch, prefix, self.counters, way, LlamaBatch)
