"""Generation with llama.cpp: one text after the other, so that none depends on others; their beginning is read once."""

import numpy as np
import torch

from vernacular.inference.generation.decode import BATCH, DecodingCounters, Way, common_prefix, decode
from vernacular.inference.generation.generate import Generation
from vernacular.inference.generation.prepare import PreparedPrompt
from vernacular.inference.llama.model import SMALLEST, LlamaModel
from vernacular.inference.model.memory import within_memory
from vernacular.inference.schema import Journal

_SHARED, _TEXT = 0, 1  # sequences: the beginning of all prompts, and the text that is generated


class SharedBeginning:
    """Tokens with which all prompts of a group begin, in a sequence of their own."""

    def __init__(self, ids: list[int]):
        self.ids = ids


class LlamaBatch:
    """One text, in place of a `DecodingBatch`."""

    last_length = None
    can_drop_rows = False

    def __init__(
        self,
        loaded: LlamaModel,
        suffixes: list[list[int]],
        prefix: SharedBeginning | None,
        room: int,
        counters: DecodingCounters,
        way: Way,
    ):
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
        self.shared: SharedBeginning | None = None
        self.is_read = False  # whether the cache contains it
        super().compute(journal)
        self.loaded.evaluations += 1

    def _limits(self) -> dict[str, int]:
        return {"rows": 1}

    def _run_group(self, prompts: list[PreparedPrompt]) -> None:
        length = min(len(prompt.ids) for prompt in prompts) - SMALLEST  # the rest is a pass of its own
        beginning = common_prefix([prompt.ids for prompt in prompts])[: max(0, length)] if len(prompts) > 1 else []
        if (
            len(beginning) < max(SMALLEST, self.loaded.lengths.first(len(prompts[0].ids)))
            or self.loaded.depends_on_batch
        ):
            beginning = []
        self.shared, self.is_read = SharedBeginning(beginning) if beginning else None, False
        self.room = max(len(prompt.ids) + prompt.max_new_tokens for prompt in prompts)
        self.strategies.append({"prompts": len(prompts), "used": "prefix" if beginning else "single"})
        self.prefix_tokens += len(beginning)
        for prompt in sorted(prompts, key=lambda prompt: prompt.request_id):
            self._run_batch([prompt], self.shared, BATCH)

    def _decode_batch(self, batch: list[PreparedPrompt], prefix: SharedBeginning | None, way: Way) -> list[dict] | None:
        if not self.is_read:
            self.loaded.open_context(self.room)
            if prefix:
                self.loaded.read(np.array(prefix.ids, np.int32), 0, _SHARED, np.zeros(0, np.int64))
                self.counters.tokens_computed += len(prefix.ids)
            self.is_read = True
        return within_memory(self.loaded, decode, self.loaded, batch, prefix, self.counters, way, LlamaBatch)
