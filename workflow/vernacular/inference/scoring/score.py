"""Scoring: the log-probability of every token of every span, computed once, with the requested statistics.

`execute.py` and `masked.py` run the model. This module prepares the requests, selects and checks a strategy, and
arranges the outputs by request; a large evaluation is processed in chunks. Only `Scoring.compute` uses the device: a
chunk is prepared, and the rows of another are built, by a thread while the device computes. The requests of one or two
chunks are in memory at a time.
"""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.core.processes import Task
from vernacular.inference.model.language_codes import in_evaluation
from vernacular.inference.model.memory import token_budget
from vernacular.inference.model.tokenization import TextModel, bos_policy
from vernacular.inference.schema import SCORES, Journal, characters_of, distinct_rows, iter_rows
from vernacular.inference.scoring.execute import (
    Counters,
    Outputs,
    build_path,
    plan_ahead,
    score_causal,
    split_by_positions,
)
from vernacular.inference.scoring.outputs import CAUSAL_EXTRAS, EXTRAS, merge_metadata
from vernacular.inference.scoring.prepare import PreparedRequest, pack, prepare_all, split_into_windows
from vernacular.inference.scoring.trie import Path, Trie, build_trie, ranges
from vernacular.protocols.schema import CHARACTERS_PER_TOKEN, REQUESTS

if TYPE_CHECKING:
    from vernacular.inference.model.loaded import LoadedModel

# Measured: a chunk takes 70 to 150 MB; one is computed while another is prepared.
CHUNK_CHARACTERS = 32_000_000  # characters
_OWN = 2_500  # memory of a request in addition to its text, in characters
_SCORED = 32  # the same of a scored character: its tokens have offsets, targets, outputs and rows
_OF_GENERATION = ["stop", "max_new_tokens", "longest_target", "decoding", "gen_kwargs"]  # a third of the table
_BATCH_ROWS = 1_000  # finished rows that are compressed together


@dataclass(eq=False)
class _Chunk:
    """The requests of a chunk, ready for the device."""

    rows: pa.Table  # request_id, item_id, role
    requests: list[PreparedRequest]  # distinct
    row_requests: np.ndarray  # index in `requests` of each row
    numbers: np.ndarray  # number in `outputs` of each request, or of its first part; -1: not scored
    parts: list[PreparedRequest]  # that are scored: requests, or the windows of a long text
    outputs: Outputs
    extras: frozenset[str]
    paths: list[Path]  # of the scored requests (causal models)
    groups: list[tuple[np.ndarray, Trie]]  # numbers of paths that may share a forward pass, and their trie

    def requests_of(self, parts: np.ndarray) -> np.ndarray:
        """Return the indices of the requests to which these parts belong."""
        scored = np.flatnonzero(self.numbers >= 0)
        return np.unique(scored[np.searchsorted(self.numbers[scored], parts, side="right") - 1])


class Scoring:
    """Score the spans of one evaluation's requests (kind "score"): a row of SCORES per row, and metadata.

    The first chunk is prepared by the constructor, computed by `compute`, and read by `finish`; see `engine.py`. Equal
    requests are computed once. The failure of a single request is recorded in its row's flag.

    Args:
        strategy: "auto" for the fastest that the model supports, or the first of STRATEGIES to try. Fallbacks and their
            reasons are in the metadata.

    Raises:
        ModelError: The model cannot be scored at all.
        ArtifactError: A request is of another kind, or two requests with the same ID differ.
        Stopped: A stop signal was received.
    """

    def __init__(self, loaded: "LoadedModel", requests: pa.Table, *, strategy: str = "auto"):
        started = time.perf_counter()
        _check(requests)
        requests = requests.drop_columns(_OF_GENERATION)
        self.loaded, self.requests, self.strategy = loaded, requests, strategy
        self.texts = in_evaluation(loaded, artifacts.metadata_of(requests, REQUESTS))
        self.chunk_rows = split_into_chunks(requests, masked=loaded.kind != "causal")
        self.n_unscored = self.n_chat = self.n_windows = 0
        self.engines: list[dict] = []  # metadata of each chunk
        self.rows = ChunkedRows()
        self.flags: Counter = Counter()
        self.next_chunk: _Chunk | None = self._prepare(0)
        self.seconds = time.perf_counter() - started

    def budget(self) -> int:
        """Return the number of tokens of a batch."""
        return token_budget(self.loaded)

    def compute(self, journal: Journal) -> None:
        started = time.perf_counter()
        self.counters = Counters(budget=self.budget())
        computed: list[_Chunk] = []  # the last one, until its rows are built
        for index in range(len(self.chunk_rows)):
            chunk, self.next_chunk = self.next_chunk, None
            with Task(lambda index=index: self._finish_and_prepare(computed, index + 1)) as task:
                self._compute(chunk, journal)
                self.next_chunk = task.result()
            computed.append(chunk)
        self.computed = computed
        self.loaded.evaluations += 1
        self.model_metadata, self.journal_notes = self.loaded.metadata(), journal.notes
        self.is_first = self.loaded.evaluations == 1
        self.seconds += time.perf_counter() - started

    def finish(self) -> tuple["pa.Table | ChunkedRows", dict]:
        started = time.perf_counter()
        rows = self._build_rows(self.computed.pop())
        n_requests = pc.count_distinct(self.requests["request_id"]).as_py()
        del self.requests
        if len(self.chunk_rows) > 1:
            self.rows.append(rows, self.chunk_rows[-1])
            rows = self.rows
        counters = {
            **self.counters.metadata(),
            "requests": n_requests,
            "chunks": len(self.chunk_rows),
            "loads": int(self.is_first),
            "seconds_loading": self.loaded.seconds if self.is_first else 0.0,
            "seconds": self.seconds + time.perf_counter() - started,
        }
        return rows, {
            "model": self.model_metadata,
            "engine": {**merge_metadata(self.engines), "journal": self.journal_notes},
            "tokenizer": self._tokenizer_metadata(),
            "counters": counters,
            "flags": dict(self.flags),
        }

    def _finish_and_prepare(self, computed: list[_Chunk], index: int) -> _Chunk | None:
        if computed:
            self.rows.append(self._build_rows(computed.pop()), self.chunk_rows[index - 2])
        return self._prepare(index) if index < len(self.chunk_rows) else None

    def _prepare(self, index: int) -> _Chunk:
        """Tokenize the distinct requests of a chunk and build the trie of their paths."""
        requests = self.requests if len(self.chunk_rows) == 1 else self.requests.take(self.chunk_rows[index])
        first_rows, row_requests = distinct_rows(requests)
        unique = requests if len(first_rows) == len(row_requests) else requests.take(first_rows)
        by_id = {request.request_id: request for request in prepare_all(self.texts, unique)}
        prepared = [by_id[request_id] for request_id in unique["request_id"].to_pylist()]
        numbers = np.full(len(prepared), -1)
        valid = [index for index, request in enumerate(prepared) if not request.failed]
        parts, numbers[valid], n_windows = split_into_windows(self.loaded, [prepared[index] for index in valid])
        self.n_windows += n_windows
        pack(parts, "ids")
        pack(prepared, "span", "offsets")
        extras = frozenset(name for request in parts for name in request.extras if name in EXTRAS)
        n_ends = (part.has_prompt and "word_end_logprobs" in part.extras for part in parts)
        paths, groups, sizes = [], [], [len(part.span) + n for part, n in zip(parts, n_ends, strict=True)]
        if self.loaded.kind == "causal":
            paths = [build_path(self.loaded, request) for request in parts]
            for group in split_by_positions(self.loaded, paths, np.arange(len(paths))):
                trie = build_trie([paths[number] for number in group])
                groups.append((group, trie if groups else self._plan_ahead(trie)))
            sizes = [len(path.targets) for path in paths]
            for request in prepared:
                request.ids, request.rest = request.span, request.span[:0]  # the paths have the others
        elif self.loaded.kind == "masked" or any(part.fills_in for part in parts):
            extras -= CAUSAL_EXTRAS
        outputs = Outputs([part.request_id for part in parts], sizes, extras)
        rows = requests.select(["request_id", "item_id", "role"])
        return _Chunk(rows, prepared, row_requests, numbers, parts, outputs, extras, paths, groups)

    def _plan_ahead(self, trie: Trie) -> Trie:
        return plan_ahead(self.loaded, trie)

    def _compute(self, chunk: _Chunk, journal: Journal) -> None:
        """Run the model on a chunk."""
        if not len(chunk.outputs.sizes) and self.engines:
            return
        if self.loaded.kind != "causal":
            from vernacular.inference.scoring.masked import Masked, score_readings
            from vernacular.inference.scoring.seq2seq import Seq2Seq

            kind = Masked(self.loaded) if self.loaded.kind == "masked" else Seq2Seq(self.loaded)
            options = {"budget": self.counters.budget, "extras": chunk.extras, "journal": journal}
            options |= {"requested": self.strategy} if self.loaded.kind == "seq2seq" else {}
            counters, engine = score_readings(kind, chunk.parts, chunk.outputs, **options)
            self.counters.add(counters)
            self.engines.append(engine)
            return
        while chunk.groups:
            self._compute_group(chunk, *chunk.groups.pop(0), journal)
        chunk.paths = []

    def _compute_group(self, chunk: _Chunk, numbers: np.ndarray, trie: Trie, journal: Journal) -> None:
        """Run a causal model on requests that may share a forward pass."""
        from vernacular.inference.scoring.strategy import select_strategy

        paths = chunk.paths if len(numbers) == len(chunk.paths) else [chunk.paths[number] for number in numbers]
        self.counters.tokens_trie += trie.size
        selected, engine = select_strategy(self.loaded, self.strategy, paths, trie.size)
        self.engines.append(engine)
        kwargs = {"extras": chunk.extras, "journal": journal}
        kwargs |= {"full_model": engine["head"] == "full", "batching": engine["batching"]}
        score = partial(score_causal, self.loaded, chunk.paths, chunk.outputs, **kwargs)
        self.counters.add(score(numbers, strategy=selected, budget=self.counters.budget, trie=trie))
        # in a row of several texts, NaN in one spreads to the others: compute the affected requests again, one per row
        if selected != "plain" and len(nan_numbers := np.intersect1d(chunk.outputs.requests_with_nan(), numbers)):
            self.counters.add(score(nan_numbers, strategy="plain", budget=self.counters.budget))
            engine["fallback"].append(
                f"plain: the model returned NaN; number of requests computed again: {len(nan_numbers)}"
            )

    def _build_rows(self, chunk: _Chunk) -> pa.Table:
        """Return the rows of a computed chunk, and count its flags."""
        out_of_memory = set(self.counters.out_of_memory)
        failed = {
            "the model returned NaN": chunk.outputs.requests_with_nan(),
            "out of memory": np.flatnonzero([part in out_of_memory for part in chunk.outputs.request_ids]),
        }
        numbers = chunk.numbers.copy()
        for reason, parts in failed.items():
            for index in chunk.requests_of(parts):
                chunk.requests[index].flags.append(f"error: {reason}")
                numbers[index] = -1
        self._count(chunk.requests)
        columns = score_columns(self.loaded, chunk.requests, chunk.outputs, numbers)
        table = pa.table(columns).take(pa.array(chunk.row_requests))
        for position, name in enumerate(chunk.rows.column_names):
            table = table.add_column(position, name, chunk.rows[name])
        return table.cast(SCORES.schema)

    def _count(self, requests: list[PreparedRequest]) -> None:
        causal = self.loaded.kind == "causal"
        self.flags += Counter(flag.split(":")[0] for request in requests for flag in request.flags)
        self.n_unscored += sum(causal and request.first == 0 for request in requests if not request.failed)
        self.n_chat += sum(request.rendered is not None for request in requests if not request.failed)

    def _tokenizer_metadata(self) -> dict:
        return {
            "class": type(self.loaded.tokenizer).__name__,
            "bos_policy": bos_policy(self.loaded) if self.loaded.kind == "causal" else None,
            "bos_token": self.loaded.tokenizer.bos_token,
            "unk_token": self.loaded.tokenizer.unk_token,
            "adds_bos": self.loaded.adds_bos,
            "unscored_first_tokens": self.n_unscored,
            "chat": self.n_chat,
            "texts_in_windows": self.n_windows,
        }


def _check(requests: pa.Table) -> None:
    """Raise ArtifactError for a request of another kind, or for different requests with the same ID."""
    for kind in requests["kind"].unique().to_pylist():
        if kind != "score":
            request_id = requests["request_id"][requests["kind"].to_pylist().index(kind)]
            raise ArtifactError(f'request {request_id}: expected kind "score", got "{kind}".')
    first_rows, row_requests = distinct_rows(requests)
    if len(first_rows) == len(row_requests):
        return
    repeated = np.delete(np.arange(len(row_requests)), first_rows)
    content = requests.drop_columns(["item_id", "role"])
    rows, expected = content.take(repeated), content.take(first_rows[row_requests[repeated]])
    if not rows.equals(expected):  # also if equal values are encoded differently
        for row, other in zip(iter_rows(rows), iter_rows(expected), strict=True):
            if row != other:
                raise ArtifactError(f"request {row['request_id']}: two rows with this ID have different content.")


def split_into_chunks(requests: pa.Table, *, masked: bool = False) -> list[np.ndarray]:
    """Return the row indices of each chunk, ascending; `masked`: a text is read once per token of its span.

    The split depends only on the requests, so that a resumed run makes the same one.
    """
    prefix, text = characters_of(requests["prefix"]), characters_of(requests["text"])
    end, start = (pc.fill_null(requests[name], 0).to_numpy() for name in ("span_end", "span_start"))
    sizes = (prefix + text) * (np.maximum(1, (end - start) / CHARACTERS_PER_TOKEN) if masked else 1)
    sizes = sizes + _OWN + _SCORED * (end - start)
    if sizes.sum() <= CHUNK_CHARACTERS:
        return [np.arange(requests.num_rows)]
    texts = pa.table({"prefix": prefix, "text": requests["text"]})
    order = pc.sort_indices(texts, [("prefix", "descending"), ("text", "ascending")]).to_numpy()
    cumulative_sizes = np.cumsum(sizes[order])
    edges = [0]
    while edges[-1] < len(order):
        edges.append(_chunk_end(texts, order, cumulative_sizes, edges[-1]))
    return [np.sort(order[low:high]) for low, high in itertools.pairwise(edges)]


def _chunk_end(texts: pa.Table, order: np.ndarray, cumulative_sizes: np.ndarray, low: int) -> int:
    """Return the end of the chunk that begins at `low`: up to CHUNK_CHARACTERS, or all of one text that is larger."""

    def splits_equal_texts(edge: int) -> bool:
        return edge < len(order) and all(
            column[int(order[edge - 1])] == column[int(order[edge])] for column in texts.columns
        )

    previous_size = cumulative_sizes[low - 1] if low else 0
    end = max(low + 1, int(np.searchsorted(cumulative_sizes, previous_size + CHUNK_CHARACTERS, side="right")))
    edge = end
    while edge > low and splits_equal_texts(edge):
        edge -= 1
    if edge > low:
        return edge
    while splits_equal_texts(end):
        end += 1
    return end


class ChunkedRows:
    """The rows of several chunks in the order of the requests, as a table that is read in parts.

    They are compressed, to a third of their memory, in one piece per chunk, until they are read.
    """

    def __init__(self):
        self.chunks: list[tuple[np.ndarray, pa.RecordBatchFileReader]] = []  # (number of each row, ascending; rows)
        self.last: dict[int, tuple[int, pa.RecordBatch]] = {}  # by chunk: number and rows of the batch last read

    def append(self, table: pa.Table, numbers: np.ndarray) -> None:
        """Add the rows of a chunk; `numbers`: of its rows among all, ascending."""
        table, sink = table.combine_chunks(), pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table, max_chunksize=_BATCH_ROWS)
        self.chunks.append((numbers, pa.ipc.open_file(sink.getvalue())))

    def __len__(self) -> int:
        return sum(len(numbers) for numbers, _ in self.chunks)

    def __getitem__(self, rows: slice) -> pa.Table:
        """Return consecutive rows; reading one part after the other decompresses each batch once."""
        start, stop, _ = rows.indices(len(self))
        parts, part_numbers = [], []
        for chunk, (numbers, _) in enumerate(self.chunks):
            low, high = np.searchsorted(numbers, (start, stop))
            parts += self._rows_of(chunk, int(low), int(high))
            part_numbers.append(numbers[low:high])
        order = np.argsort(np.concatenate(part_numbers))
        return pa.Table.from_batches(parts, self.chunks[0][1].schema).combine_chunks().take(pa.array(order))

    def slice(self, offset: int = 0, length: int | None = None) -> pa.Table:
        """Return rows as `pa.Table.slice` does."""
        return self[offset : None if length is None else offset + length]

    def _rows_of(self, chunk: int, low: int, high: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows `low` to `high` of a chunk, whose batches, except the last, have _BATCH_ROWS rows."""
        while low < high:
            number, first = divmod(low, _BATCH_ROWS)
            if self.last.get(chunk, (-1,))[0] != number:
                self.last[chunk] = number, self.chunks[chunk][1].get_batch(number)
            rows = self.last[chunk][1].slice(first, high - low)
            low += len(rows)
            yield rows


def score_columns(
    loaded: TextModel, requests: list[PreparedRequest], outputs: Outputs, numbers: np.ndarray
) -> dict[str, pa.Array]:
    """Return the columns of SCORES after `role`, with a row per request.

    `numbers`: the number of each request in `outputs`; -1: it has no outputs, and only its text and flags are known.
    """
    lists = _Lists(requests, outputs, numbers, skips_first=loaded.kind == "causal")
    valid = [request for request, number in zip(requests, numbers, strict=True) if number >= 0]
    ids, indices = np.unique(np.concatenate([_NO_IDS, *(r.span for r in valid)]), return_inverse=True)
    names = pa.array(loaded.tokenizer.convert_ids_to_tokens(ids.tolist()), pa.string())
    offsets = np.concatenate([np.zeros((0, 2), np.int32), *(request.offsets for request in valid)])
    return {
        "tokens": lists.array(names.take(pa.array(indices))),
        "offsets": lists.array(pa.FixedSizeListArray.from_arrays(pa.array(offsets.ravel()), 2)),
        "logprobs": lists.outputs("logprobs", pa.float32()),
        "is_greedy": lists.outputs("is_greedy", pa.bool_()),
        "entropy": lists.outputs("entropy", pa.float32(), extra="entropy"),
        "topk_entropy": lists.outputs("topk_entropy", pa.float32(), extra="entropy"),
        "rank": lists.outputs("rank", pa.int32(), extra="rank"),
        "top_tokens": _names(loaded, lists.outputs("top_id", pa.int32(), extra="top_token")),
        "word_end_logprobs": lists.outputs("word_end_logprobs", pa.float32(), extra="word_end_logprobs", n_more=1),
        "logprob_mean": lists.outputs("logprob_mean", pa.float32(), extra="logprob_moments"),
        "logprob_sd": lists.outputs("logprob_sd", pa.float32(), extra="logprob_moments"),
        "n_prompt_tokens": pa.array([r.first for r in requests], pa.int32(), mask=numbers < 0),
        "rendered": pa.array([request.rendered for request in requests], pa.string()),
        "flags": pa.array([request.flag for request in requests], pa.string()),
    }


_NO_IDS = np.zeros(0, np.int32)


def _names(loaded: TextModel, lists: pa.ListArray) -> pa.ListArray:
    """Return lists of tokens from lists of their IDs."""
    ids = lists.values.dictionary_encode()
    names = pa.array(loaded.tokenizer.convert_ids_to_tokens(ids.dictionary.to_pylist()), pa.string())
    return pa.ListArray.from_arrays(lists.offsets, names.take(ids.indices), mask=lists.is_null())


class _Lists:
    """List columns with a value per token of the span of each request, null for requests without outputs."""

    def __init__(self, requests: list[PreparedRequest], outputs: Outputs, numbers: np.ndarray, *, skips_first: bool):
        self.requests, self.stored = requests, outputs
        self.valid = numbers >= 0
        self.sizes = np.array([len(request.span) for request in requests], np.int64)
        # causal models: the first token of a text has no predecessor, and therefore no output
        self.skips = np.array([skips_first and request.first == 0 for request in requests], np.bool_)
        self.starts = np.zeros(len(requests), np.int64)
        self.starts[self.valid] = outputs.starts[numbers[self.valid]]
        self.starts -= self.skips

    def array(self, values: pa.Array) -> pa.ListArray:
        """Return lists of the values of all valid requests, one after the other."""
        return self._array(values, self.valid, self.sizes)

    def outputs(self, name: str, dtype: pa.DataType, *, extra: str | None = None, n_more: int = 0) -> pa.ListArray:
        """Return lists of outputs, with `n_more` after the last token, of the requests with an extra (None: of all)."""
        has_extra = np.array([extra is None or extra in request.extras for request in self.requests], np.bool_)
        valid, sizes = self.valid & has_extra, self.sizes + n_more
        indices = ranges(self.starts[valid], sizes[valid])
        if name not in self.stored.values:  # not computed for this kind of model
            return self._array(pa.nulls(len(indices), dtype), valid, sizes)
        is_null = np.zeros(len(indices), np.bool_)
        is_null[(np.cumsum(sizes[valid]) - sizes[valid])[self.skips[valid]]] = True
        return self._array(pa.array(self.stored.values[name][indices], dtype, mask=is_null), valid, sizes)

    def _array(self, values: pa.Array, valid: np.ndarray, sizes: np.ndarray) -> pa.ListArray:
        edges = np.concatenate([np.zeros(1, np.int32), np.cumsum(np.where(valid, sizes, 0), dtype=np.int32)])
        return pa.ListArray.from_arrays(pa.array(edges), values, mask=pa.array(~valid))
