"""Encoder-decoder models: the log-probability of a span given a prompt, or of the words of a text, each filled in.

The encoder runs once for all options of a question. Each option continues the state of the decoder after its first
tokens, which holds the keys and values of the prompt in all layers (`model/encoder_decoder.py`).

In a text without a prompt, each word in turn is replaced by a sentinel, behind which the decoder predicts its tokens.
The sum is a pseudo-log-likelihood ("infilling"), as that of masked models (Salazar et al. 2020).
"""

import contextlib
from itertools import groupby

import numpy as np
import torch

from vernacular.inference.generation.decode import returned_state
from vernacular.inference.model.encoder_decoder import encode_prompts, of_rows, padded
from vernacular.inference.model.loaded import LoadedModel, state_name
from vernacular.inference.model.tokenization import SPECIAL
from vernacular.inference.scoring.head import DeviceScores, Head
from vernacular.inference.scoring.masked import Masked, Query, Reading, ReadingBatch, Way
from vernacular.inference.scoring.prepare import PreparedRequest


class Seq2Seq(Masked):
    """How spans are computed by a decoder."""

    ways = (*(Way(batching, full_model=False, strategy="prefix") for batching in ("padded", "equal")), *Masked.ways)

    def __init__(self, loaded: LoadedModel):
        self.loaded = loaded

    def queries(self, request: PreparedRequest) -> list[Query]:
        """Return the query of each token of the span: after the prompt, or as part of a word that is filled in."""
        ids, first = request.ids.tolist(), request.first
        if request.has_prompt:
            end = [-1] if "word_end_logprobs" in request.extras else []  # the distribution after the last token
            return _of_span(tuple(ids[:first]), request.start, ids[first:] + end)
        words = [-1 - index if word == SPECIAL else word for index, word in enumerate(request.words.tolist())]
        queries = []
        for word, group in groupby(range(first, request.stop), words.__getitem__):
            span = list(group)
            low, high = words.index(word), len(words) - words[::-1].index(word)
            start = (*request.start, *ids[low : span[0]])  # what of the word is before the window
            queries += _of_span((*ids[:low], request.start[-1], *ids[high:]), start, [ids[i] for i in span])
        return queries

    def score(self, head: Head, batch: ReadingBatch, way: Way) -> DeviceScores:
        """Start the forward passes; return the outputs of the batch's token queries, in their order."""
        loaded, decoders = self.loaded, [reading.decoder for reading in batch.readings]  # the shortest first
        numbers = {text: number for number, text in enumerate(batch.texts)}
        texts = np.array([numbers[reading.ids] for reading in batch.readings])
        if self.encoded is None or self.encoded[0] != batch.texts:
            self.encoded = None  # before others are in memory
            self.encoded = batch.texts, encode_prompts(loaded, batch.texts)
        inputs, start = self.encoded[1], decoders[0]
        is_shared = len(numbers) < len(texts) and all(decoder[: len(start)] == start for decoder in decoders)
        n_shared = len(start) if way.strategy == "prefix" and is_shared else 0
        n_first = sum(len(decoder) <= n_shared for decoder in decoders)
        rows, columns = batch.queries.rows, batch.queries.columns
        parts: list[tuple[torch.Tensor, np.ndarray]] = []
        if n_shared:  # once per prompt
            shared = torch.tensor([start] * len(numbers), device=loaded.device)
            positions = (texts[rows] * n_shared + columns)[rows < n_first]
            output = self._decode(parts, positions, way, **inputs, decoder_input_ids=shared, use_cache=True)
        if n_first < len(texts):
            kept = torch.from_numpy(texts[n_first:]).to(loaded.device)
            rest, _ = padded(loaded, [decoder[n_shared:] for decoder in decoders[n_first:]])
            kwargs = of_rows(inputs, kept) | {"decoder_input_ids": rest, "use_cache": bool(n_shared)}
            if n_shared:
                state = returned_state(output)
                state.batch_select_indices(kept)
                kwargs[state_name(loaded.model.forward)] = state
            positions = ((rows - n_first) * rest.shape[1] + columns - n_shared)[rows >= n_first]
            output = self._decode(parts, positions, way, **kwargs)
        logits, indices = zip(*parts, strict=True)
        return head.score(torch.cat(logits), output, np.concatenate(indices), batch.queries.targets)

    def _decode(self, parts: list, positions: np.ndarray, way: Way, **kwargs):
        """Append (logits at the distinct `positions` in all rows, the index of each among those of all parts)."""
        is_new = np.diff(positions, prepend=-1) != 0
        distinct = torch.from_numpy(positions[is_new]).to(self.loaded.device)
        head, hook = self.loaded.model.get_output_embeddings(), contextlib.nullcontext()
        if not way.full_model:
            hook = head.register_forward_pre_hook(lambda _, inputs: (inputs[0].flatten(0, 1)[distinct],))
        with hook:
            output = self.loaded.model(**kwargs)
        logits = output.logits.flatten(0, 1)[distinct] if way.full_model else output.logits
        parts.append((logits, np.cumsum(is_new) - 1 + sum(len(part[0]) for part in parts)))
        return output

    def logits(self, reading: Reading) -> torch.Tensor:
        """Return the logits of a reading, [positions, vocabulary], by transformers' forward of it alone."""
        ids, decoder = (torch.tensor([part], device=self.loaded.device) for part in (reading.ids, reading.decoder))
        return self.loaded.model(input_ids=ids, decoder_input_ids=decoder, **self.loaded.without_cache).logits[0]


def _of_span(text: tuple[int, ...], start: tuple[int, ...], span: list[int]) -> list[Query]:
    """Return the queries of a span that a decoder reads after `start`.

    >>> _of_span((7, 1), (0,), [5, 6])
    [((7, 1), (0,), 0, 5), ((7, 1), (0, 5), 1, 6)]
    """
    decoder, last = (*start, *span[:-1]), len(start) - 1  # the first query is that of all spans after the prompt
    return [(text, decoder if n else start, last + n, token) for n, token in enumerate(span)]
