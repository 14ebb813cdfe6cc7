"""Batched decoding by an encoder-decoder: the encoder reads each prompt once, the decoder continues from its start.

Prompts are padded on the right, behind an attention mask. What the decoder has read is a state of two parts: keys and
values of its own tokens, and those of the prompt.
"""

from collections.abc import Callable
from functools import partial

import torch

from vernacular.inference.generation.decode import BATCH, DecodingBatch, DecodingCounters, Prefix, Way, returned_state
from vernacular.inference.model.encoder_decoder import encode_prompts, of_rows
from vernacular.inference.model.loaded import LoadedModel, state_name


class Seq2SeqBatch(DecodingBatch):
    """A batch during decoding: the encoded prompts, the state of the decoder, and its next tokens."""

    last_length = None  # of the text; positions of a decoder begin with its start

    def __init__(
        self,
        loaded: LoadedModel,
        suffixes: list[list[int]],
        prefix: Prefix | None,
        room: int,
        counters: DecodingCounters,
        way: Way = BATCH,
        *,
        start: tuple[int, ...] = (),
    ):
        """Initialize with `suffixes`: the prompts, without a prefix; `start`: of the decoder; (): the model's own."""
        self.loaded, self.counters, self.way = loaded, counters, way
        self.state, self.state_name = None, state_name(loaded.model.forward)
        if way.takes_state and self.state_name is None:
            raise ValueError("the model takes no state from which it could continue")
        loaded.forget_lengths()
        with torch.inference_mode():
            self.inputs = encode_prompts(loaded, suffixes)
        counters.tokens_computed += self.inputs["input_ids"].numel()
        self.ids = torch.tensor([start or loaded.start_ids] * len(suffixes), device=loaded.device)

    @torch.inference_mode()
    def logits(self, positions: int = 1) -> torch.Tensor:
        """Run the current tokens; return float32 logits [rows, vocabulary] of the next, or [rows, positions, …]."""
        kwargs = {"decoder_input_ids": self.ids, "use_cache": self.way.takes_state, "return_dict": True}
        kwargs |= {} if self.state is None else {self.state_name: self.state}
        outputs = self.loaded.model(**self.inputs, **kwargs)
        if self.way.takes_state:
            self.state = returned_state(outputs)
        self.counters.forwards += 1
        self.counters.tokens_computed += self.ids.numel()
        logits = outputs.logits[:, -positions:].float()
        return logits[:, -1] if positions == 1 else logits

    def append(self, tokens: list[int]) -> None:
        """Set the next input token of each row."""
        ids = torch.tensor(tokens, device=self.loaded.device)[:, None]
        self.ids = ids if self.way.takes_state else torch.cat([self.ids, ids], dim=1)

    @property
    def can_drop_rows(self) -> bool:
        """Whether finished rows can be removed."""
        return self.way.drops_rows and hasattr(self.state, "batch_select_indices")

    def select_rows(self, rows: list[int]) -> None:
        """Remove all rows except `rows`."""
        indices = torch.tensor(rows, device=self.loaded.device)
        self.state.batch_select_indices(indices)
        self.inputs = of_rows(self.inputs, indices)


def batch_class_of(loaded: LoadedModel, start: tuple[int, ...] = ()) -> Callable[..., DecodingBatch]:
    """Return what makes a model's batches; `start`: of the decoder, in the language of an evaluation."""
    return partial(Seq2SeqBatch, start=start) if loaded.kind == "seq2seq" else DecodingBatch
