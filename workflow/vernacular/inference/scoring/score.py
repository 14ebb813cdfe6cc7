"""Scoring: the log-probability of every token of every span, computed once, with the requested statistics.

`execute.py` and `masked.py` run the model. This module prepares the requests, selects and checks a strategy, and
arranges the outputs by request; a large evaluation is processed in chunks.
"""

import itertools
import logging
import time
from collections import Counter

import pyarrow as pa

from vernacular.core.errors import ArtifactError
from vernacular.inference.journal import Journal, MemoryJournal
from vernacular.inference.model.loaded import LoadedModel, token_budget
from vernacular.inference.model.tokenization import bos_policy
from vernacular.inference.schema import SCORES, iter_rows, rows_to_table
from vernacular.inference.scoring.execute import Counters, build_path, score_causal
from vernacular.inference.scoring.head import EXTRAS, TokenScores
from vernacular.inference.scoring.masked import score_masked
from vernacular.inference.scoring.prepare import PreparedRequest, is_rolling, merge_chunks, prepare, split_into_chunks
from vernacular.inference.scoring.rolling import windows
from vernacular.inference.scoring.strategy import merge_metadata, select_strategy
from vernacular.inference.scoring.trie import Path, build_trie, trie_size

log = logging.getLogger("vernacular")


def score(
    loaded: LoadedModel,
    requests: pa.Table,
    *,
    journal: Journal | None = None,
    strategy: str | None = None,
) -> tuple[pa.Table, dict]:
    """Score the spans of `requests` (kind "score"); return (table per SCORES, a row per request row; metadata).

    Equal requests are computed once. The failure of a single request is recorded in its row's flag.

    Args:
        strategy: "auto" (or None) for the fastest that the model supports, or the first of STRATEGIES to try.
            Fallbacks and their reasons are in the metadata.

    Raises:
        ModelError: The model cannot be scored at all.
        ArtifactError: A request is of another kind, or two requests with the same ID differ.
        Stopped: A stop signal was received.
    """
    started = time.perf_counter()
    for kind in requests["kind"].unique().to_pylist():
        if kind != "score":
            request_id = requests["request_id"][requests["kind"].to_pylist().index(kind)]
            raise ArtifactError(f'request {request_id}: expected kind "score", got "{kind}".')
    journal = MemoryJournal() if journal is None else journal
    scorer = _Scorer(loaded, journal, strategy or "auto")
    chunks = split_into_chunks(requests, masked=loaded.kind == "masked")
    table = merge_chunks([scorer.score_chunk(requests.take(rows)) for rows in chunks], chunks)
    loaded.evaluations += 1
    metadata = {
        "model": loaded.metadata(),
        "engine": {**merge_metadata(scorer.engines), "journal": journal.notes},
        "tokenizer": scorer.tokenizer_metadata(),
        "counters": {
            **scorer.counters.metadata(),
            "requests": len(scorer.contents),
            "chunks": len(chunks),
            "loads": int(loaded.evaluations == 1),
            "seconds_loading": loaded.seconds if loaded.evaluations == 1 else 0.0,
            "seconds": time.perf_counter() - started,
        },
        "flags": dict(scorer.flags),
    }
    return table, metadata


class _Scorer:
    """The state of one evaluation's scoring, and its counters for the metadata."""

    def __init__(self, loaded: LoadedModel, journal: Journal, strategy: str):
        self.loaded, self.journal, self.strategy = loaded, journal, strategy
        self.counters = Counters(budget=token_budget(loaded))
        self.contents: dict[str, int] = {}  # request ID -> hash of the request's content
        self.engines: list[dict] = []  # metadata of each chunk
        self.flags: Counter = Counter()
        self.n_unscored = self.n_chat = self.n_windows = 0
        self.interned: dict[int, int] = {}  # see `build_path`

    def score_chunk(self, requests: pa.Table) -> pa.Table:
        """Score a chunk of the requests; return one row per request row."""
        prepared, paths = self._prepare(requests)
        scored = self._split(prepared, paths)
        outputs = {request_id: _Output(request) for request_id, request in scored.items() if not request.failed}
        self._compute(scored, paths, outputs)
        for request_id in [request_id for request_id, output in outputs.items() if output.has_nan]:
            scored[request_id].flags.append("error: the model returned NaN")
            del outputs[request_id]
        for request_id in self.counters.out_of_memory:
            if request_id in scored:
                scored[request_id].flags.append("error: out of memory")
                outputs.pop(request_id, None)
        self._join(prepared, scored, outputs)
        self._count(prepared.values())
        id_columns = requests.select(["request_id", "item_id", "role"])
        return rows_to_table(
            (_row(self.loaded, row, prepared, outputs) for row in iter_rows(id_columns)), SCORES.schema
        )

    def tokenizer_metadata(self) -> dict:
        """Return the tokenizer's metadata."""
        return {
            "class": type(self.loaded.tokenizer).__name__,
            "bos_policy": bos_policy(self.loaded) if self.loaded.kind == "causal" else None,
            "bos_token": self.loaded.tokenizer.bos_token,
            "adds_bos": self.loaded.adds_bos,
            "unscored_first_tokens": self.n_unscored,
            "chat": self.n_chat,
            "texts_in_windows": self.n_windows,
        }

    def _prepare(self, requests: pa.Table) -> tuple[dict[str, PreparedRequest], dict[str, Path]]:
        """Return a chunk's distinct requests and, for causal models, their paths; texts and rows are not retained."""
        prepared, paths = {}, {}
        for row in iter_rows(requests):
            request_id = row["request_id"]
            content = hash(str([value for name, value in row.items() if name not in ("item_id", "role")]))
            if self.contents.setdefault(request_id, content) != content:
                raise ArtifactError(f"request {request_id}: two rows with this ID have different content.")
            if request_id in prepared:
                continue
            request = prepared[request_id] = prepare(self.loaded, row)
            if self.loaded.kind == "causal" and not request.failed and not is_rolling(self.loaded, request):
                paths[request_id] = build_path(request, self.interned)
                request.ids = []
        return prepared, paths

    def _split(self, prepared: dict[str, PreparedRequest], paths: dict[str, Path]) -> dict[str, PreparedRequest]:
        """Return `prepared` with the windows of each rolling request in its place, and add their paths."""
        scored = {}
        for request_id, request in prepared.items():
            if request.failed or request_id in paths or not is_rolling(self.loaded, request):
                scored[request_id] = request
                continue
            for window in windows(request, self.loaded.max_length):
                scored[window.request_id] = window
                paths[window.request_id] = build_path(window, self.interned)
                window.ids = []
            request.ids = []
            self.n_windows += 1
        return scored

    def _join(self, prepared: dict[str, PreparedRequest], scored: dict[str, PreparedRequest], outputs: dict) -> None:
        """Replace the outputs of windows by those of their request; none if one of the windows has failed."""
        for request_id in prepared.keys() - scored.keys():
            parts = [scored[name] for name in _window_ids(request_id, scored)]
            missing = [part for part in parts if part.request_id not in outputs]
            prepared[request_id].flags += list(dict.fromkeys(flag for part in missing for flag in part.flags))
            joined = _Output(prepared[request_id])
            if not missing:
                for name in joined.values:
                    joined.values[name] = [value for part in parts for value in outputs[part.request_id].values[name]]
                outputs[request_id] = joined

    def _compute(
        self, prepared: dict[str, PreparedRequest], paths: dict[str, Path], outputs: dict[str, "_Output"]
    ) -> None:
        pending = [prepared[request_id] for request_id in outputs]
        if not pending and self.engines:
            return

        def on_scores(queries: list, scores: TokenScores) -> None:
            for index, (_, _, _, requesters) in enumerate(queries):
                for request_id, slot in requesters:
                    outputs[request_id].put(slot, scores, index)

        extras = frozenset(name for request in pending for name in request.extras if name in EXTRAS)
        kwargs = {"extras": extras, "on_scores": on_scores, "journal": self.journal}
        if self.loaded.kind == "masked":
            counters, engine = score_masked(self.loaded, pending, budget=self.counters.budget, **kwargs)
            self.counters.add(counters)
            self.engines.append(engine)
            return
        tokens = trie_size(build_trie(list(paths.values())))
        self.counters.tokens_trie += tokens
        selected, engine = select_strategy(self.loaded, self.strategy, paths, tokens)
        self.engines.append(engine)
        kwargs["full_model"] = engine["head"] == "full"
        self.counters.add(score_causal(self.loaded, paths, strategy=selected, budget=self.counters.budget, **kwargs))
        # in a row of several texts, NaN in one spreads to the others: compute the affected requests again, one per row
        if selected != "plain" and (
            nan_ids := [request_id for request_id, output in outputs.items() if output.has_nan]
        ):
            nan_paths = {request_id: paths[request_id] for request_id in nan_ids}
            counters = score_causal(self.loaded, nan_paths, strategy="plain", budget=self.counters.budget, **kwargs)
            self.counters.add(counters)
            engine["fallback"].append(
                f"plain: the model returned NaN; number of requests computed again: {len(nan_paths)}"
            )

    def _count(self, prepared) -> None:
        causal = self.loaded.kind == "causal"
        self.flags += Counter(flag.split(":")[0] for request in prepared for flag in request.flags)
        self.n_unscored += sum(causal and request.first == 0 for request in prepared if not request.failed)
        self.n_chat += sum(request.rendered is not None for request in prepared if not request.failed)


def _window_ids(request_id: str, scored: dict) -> list[str]:
    return list(itertools.takewhile(scored.__contains__, (f"{request_id}#{n}" for n in itertools.count())))


class _Output:
    """The outputs of one request: one value per token of its span (and one more for the end of the word)."""

    def __init__(self, request: PreparedRequest):
        self.values: dict[str, list] = {}
        size = request.stop - request.first
        for name in ("logprobs", "is_greedy"):
            self.values[name] = [None] * size
        if "entropy" in request.extras:
            self.values |= {"entropy": [None] * size, "topk_entropy": [None] * size}
        if "rank" in request.extras:
            self.values["rank"] = [None] * size
        if "word_end_logprobs" in request.extras:
            self.values["word_end_logprobs"] = [None] * (size + 1)

    @property
    def has_nan(self) -> bool:
        """Whether an output is NaN."""
        return any(value != value for values in self.values.values() for value in values)

    def put(self, slot: int, scores: TokenScores, index: int) -> None:
        """Store the output at `index` for the token at `slot`."""
        for name, values in self.values.items():
            column = getattr(scores, name)
            if slot < len(values) and column is not None:
                values[slot] = column[index]


def _row(loaded: LoadedModel, row: dict, prepared: dict[str, PreparedRequest], outputs: dict[str, _Output]) -> dict:
    request = prepared[row["request_id"]]
    output_row = {**row, "rendered": request.rendered, "flags": request.flag}
    if row["request_id"] not in outputs:
        return output_row
    return output_row | {
        "tokens": loaded.tokenizer.convert_ids_to_tokens(request.span),
        "offsets": request.offsets,
        "n_prompt_tokens": request.first,
        **outputs[row["request_id"]].values,
    }
