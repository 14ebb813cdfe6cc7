"""Schemas of scores and generations: the raw outputs of the evaluated model.

`Journal` is the interface of finished batches, from which a killed job resumes. `store.Journal` is the durable
implementation. It is not imported here: the storage of outputs does not affect their values, so an edit of the store
must not invalidate any scores.
"""

import contextlib
import itertools
import typing
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.core.artifacts import Kind
from vernacular.core.metadata import OutputsMetadata, RequestsMetadata

SCORES = Kind(
    "scores",
    [
        ("request_id", pa.string()),
        ("item_id", pa.string()),
        ("role", pa.string()),
        ("tokens", pa.list_(pa.string())),  # the span's tokens, as `convert_ids_to_tokens` returns them
        # [start, end) in prefix + text, or in `rendered` if not null
        ("offsets", pa.list_(pa.list_(pa.int32(), 2))),
        ("logprobs", pa.list_(pa.float32())),  # nats, per token of the span; null where no token precedes it
        ("is_greedy", pa.list_(pa.bool_())),  # whether the token is the most probable one
        ("entropy", pa.list_(pa.float32())),  # nats, of the next-token distribution; null unless requested
        ("topk_entropy", pa.list_(pa.float32())),  # nats, of the top 100, renormalized; null unless requested
        ("rank", pa.list_(pa.int32())),  # 1 = most probable; null unless requested
        ("top_tokens", pa.list_(pa.string())),  # the most probable token in place of each; null unless requested
        # ln P(a word ends here), before each token and after the last; nats
        ("word_end_logprobs", pa.list_(pa.float32())),
        # mean and standard deviation of ln p under the next-token distribution, nats; null unless requested
        ("logprob_mean", pa.list_(pa.float32())),
        ("logprob_sd", pa.list_(pa.float32())),
        ("n_prompt_tokens", pa.int32()),  # tokens before the span, special tokens included
        ("rendered", pa.string()),  # the text sent, if a chat template was applied; null otherwise
        # null, "boundary", "truncated: …", "unknown token: …", "empty", "error: …"; several joined by "; "
        ("flags", pa.string()),
    ],
    key=("item_id", "role"),
    required=("request_id",),
    metadata=OutputsMetadata,
    path_depth=3,
)

GENERATIONS = Kind(
    "generations",
    [
        ("request_id", pa.string()),
        ("item_id", pa.string()),
        ("role", pa.string()),
        # all generated text after the reasoning, stop string included, special tokens removed
        ("raw_output", pa.string()),
        ("output", pa.string()),  # raw up to the first stop string, without surrounding whitespace
        ("finish_reason", pa.string()),  # "stop", "eos", "length"
        ("n_tokens", pa.int32()),  # of the answer
        ("reasoning", pa.string()),  # text before the answer, without markers; null without any
        # "none" (although asked for), "closed", "reopened", "unclosed" (no answer); null: none, and not asked for
        ("think_state", pa.string()),
        ("n_reasoning_tokens", pa.int32()),  # generated before the answer, markers included; null: unknown
        ("think_budget", pa.int32()),  # largest number of them; null: none is asked for
        ("n_prompt_tokens", pa.int32()),
        ("rendered", pa.string()),
        ("flags", pa.string()),  # null, "truncated: 2 few-shot examples dropped", "error: …"
    ],
    key=("item_id", "role"),
    required=("request_id",),
    metadata=OutputsMetadata,
    path_depth=3,
)


def output_schema(requests: RequestsMetadata) -> Kind:
    """Return the schema of the outputs for requests with this metadata."""
    return GENERATIONS if requests.request_kind == "generate" else SCORES


# statistics that need the distribution over all tokens, and their names for users
_STATISTICS = {name: name for name in ("entropy", "rank", "word_end_logprobs")} | {"logprob_moments": "min_k_plus_plus"}


def missing_statistics(requests: pa.Table, reason: str) -> list[str]:
    """Return, for the notes, the requested statistics of an engine that has no distributions over all tokens."""
    requested = {extra for extras in requests["extras"].to_pylist() for extra in extras or []}
    names = sorted(name for extra, name in _STATISTICS.items() if extra in requested)
    return [f"{', '.join(names)}: {reason}"] if names else []


_ROWS_AT_A_TIME = 500


def iter_rows(table: pa.Table) -> Iterator[dict]:
    """Yield the rows of `table` as dicts, converted in chunks of `_ROWS_AT_A_TIME`."""
    for start in range(0, table.num_rows, _ROWS_AT_A_TIME):
        yield from table.slice(start, _ROWS_AT_A_TIME).to_pylist()


def distinct_rows(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return (first row of each distinct request, ascending; for each row, the number of its request)."""
    numbers = table["request_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    return np.unique(numbers, return_index=True)[1], numbers


def distinct(table: pa.Table) -> pa.Table:
    """Return the first row of each request ID."""
    return table.take(distinct_rows(table)[0])


def rows_to_table(rows: Iterator[dict], schema: pa.Schema) -> pa.Table:
    """Return `rows` as a table of `schema`, converted in chunks of `_ROWS_AT_A_TIME`."""
    tables = [schema.empty_table()]
    while chunk := list(itertools.islice(rows, _ROWS_AT_A_TIME)):
        tables.append(pa.Table.from_pylist(chunk, schema=schema))
    return pa.concat_tables(tables)


def characters_of(column: pa.ChunkedArray) -> np.ndarray:
    """Return the characters of each text; a dictionary-encoded text is measured once."""
    lengths = [np.zeros(0, int)]
    for chunk in column.chunks:
        is_dictionary = pa.types.is_dictionary(chunk.type)
        chunk_lengths = pc.utf8_length(chunk.dictionary).take(chunk.indices) if is_dictionary else pc.utf8_length(chunk)
        lengths.append(chunk_lengths.to_numpy(zero_copy_only=False))
    return np.concatenate(lengths)


class Journal(typing.Protocol):
    """Finished batches of one evaluation, by batch name (a hash of the batch's content)."""

    notes: list[str]  # parts dropped while reading, for the metadata

    def get(self, batch: str) -> list[dict] | None:
        """Return the rows of a finished batch, or None."""

    def add(self, batch: str, rows: list[dict]) -> None:
        """Store the rows of a finished batch."""

    def defer_signals(self) -> contextlib.AbstractContextManager:
        """Return a context in which a batch is computed and added; a signal takes effect at its end."""

    def flush(self) -> None:
        """Write the batches that are not yet on disk."""


class MemoryJournal:
    """A journal in memory, for runs without a store."""

    def __init__(self):
        self.notes: list[str] = []
        self._rows: dict[str, list[dict]] = {}

    def get(self, batch: str) -> list[dict] | None:
        return self._rows.get(batch)

    def add(self, batch: str, rows: list[dict]) -> None:
        self._rows[batch] = rows

    def defer_signals(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def flush(self) -> None:
        pass
