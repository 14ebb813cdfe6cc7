"""Engines compute outputs. This is the interface of all of them, and those that come with the package.

A job opens the engine of a base model once. For each of its models, and for each evaluation, it calls

    prepare   in a thread, while the device computes another evaluation: texts become tokens and batches
    compute   in the main thread, which alone uses the device and receives signals: batches are added to a journal
    finish    in a thread: one row per request, of SCORES or GENERATIONS (`schema.py`), and metadata

A new engine is one class, in a module that Python finds; a model of the config names it: `engine_class: module:Class`.
Its model has the files of its source, as any other. Classes import slow libraries where they use them: what an engine
can do is also asked where no model is loaded.
"""

import contextlib
import importlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from vernacular.checkpoints import inputs
from vernacular.checkpoints.files import check_settings, fills_in
from vernacular.core.artifacts import Kind
from vernacular.core.errors import ModelError, named
from vernacular.core.library_errors import LOADING_ERRORS
from vernacular.core.model_record import ModelRecord
from vernacular.inference.schema import SCORES, Journal, MemoryJournal
from vernacular.inference.self_test import speed_problem

log = logging.getLogger("vernacular")


@dataclass(frozen=True)
class Abilities:
    """What an engine can compute for a model; an evaluation that needs more is not applicable, for the given reason."""

    scores: bool = True  # log-probabilities of single tokens after a text, as of the letters of options
    forced_spans: bool = True  # log-probabilities of all tokens of given texts
    entropies: bool = True  # statistics of the distribution over all tokens; without them, single metrics are missing
    generation: bool = True  # texts
    left_to_right: bool = True  # each token is given those before it; False: a masked model
    whole_texts: bool = True  # log-probabilities of texts without a prompt
    reasons: dict[str, str] = field(default_factory=dict)  # why not, for readers, by the name of an ability

    def reason(self, ability: str) -> str | None:
        """Return why the engine lacks an ability; None if it has it."""
        return None if getattr(self, ability) else self.reasons.get(ability) or f"the engine has no {ability}"


class Engine(ABC):
    """A base model that is ready to compute, and its adapters, one at a time.

    `record`: of the base; `threads`: of the CPU (None: unchanged); `is_shared`: whether several models are computed;
    `requests`: of the job, with the columns item_id, prefix and text, a table at a time. Raises ModelError if the model
    cannot be used, and MachineError if this machine cannot run it, so that another attempt may succeed.
    """

    code: ClassVar[dict[str, tuple[str, ...]]] = {}  # modules of this package on which outputs depend, by kind
    libraries: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers")  # the same, by their distributions
    device: Any = None  # for messages
    is_asynchronous = False  # whether `compute` calls `on_batch` once the device has a batch; threads wait for it
    shares_prompts = False  # whether evaluations that differ in the prompt only may be computed as one
    is_open = True  # False: the base could not be loaded again
    on_batch: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self,
        record: ModelRecord,
        *,
        threads: int | None = None,
        is_shared: bool = False,
        requests: Iterable[pa.Table] = (),
    ):
        self.record = record  # of the model that is computed

    @classmethod
    def abilities(cls, record: ModelRecord) -> Abilities:
        """Return what can be computed for a model, from its record alone."""
        return Abilities()

    @contextlib.contextmanager
    def model(self, record: ModelRecord) -> Iterator[None]:
        """Make a model ready, the base or one of its adapters, and release it."""
        self.record = record
        yield

    def verify(self) -> None:
        """Raise ModelError if the model is no longer the recorded one; called before and after each evaluation."""
        inputs.verify(self.record)

    @abstractmethod
    def prepare(self, kind: Kind, requests: pa.Table) -> Any:
        """Return what `compute` needs for all requests of an evaluation; `kind` of outputs: SCORES or GENERATIONS."""

    @abstractmethod
    def compute(self, prepared: Any, journal: Journal) -> None:
        """Compute what is not in the journal, and add it to `prepared`."""

    @abstractmethod
    def finish(self, prepared: Any) -> tuple[pa.Table, dict]:
        """Return (a row for each row of the requests, metadata such as engine: name, counters and flags).

        Rows are a table, or are read as one in parts: by `len(rows)`, `rows[start:stop]` and `rows.slice()`.
        """

    def run(self, kind: Kind, requests: pa.Table) -> tuple[pa.Table, dict]:
        """Return what `finish` returns, as a table, without a journal on disk."""
        prepared = self.prepare(kind, requests)
        self.compute(prepared, MemoryJournal())
        rows, metadata = self.finish(prepared)
        return rows.slice(), metadata


class Local(Engine):
    """A model of transformers in memory."""

    code: ClassVar = {
        "scores": ("vernacular.inference.scoring.score", "vernacular.inference.model.load"),
        "generations": ("vernacular.inference.generation.generate", "vernacular.inference.model.load"),
    }

    def __init__(self, record, *, threads=None, is_shared=False, requests=()):
        from vernacular.inference.generation.prepare import check_rendering
        from vernacular.inference.model.load import Base

        super().__init__(record)
        check_settings(record.name, record.kind, vars(record))
        check_rendering(record)
        self.base = Base(record, threads=threads, shared=is_shared)
        if problem := speed_problem():
            log.warning(problem)
        self.loaded = None  # the model that is computed; not kept, so that its memory is free if it is loaded again

    @classmethod
    def abilities(cls, record):
        is_causal, is_seq2seq = record.kind != "masked", record.kind == "seq2seq"
        reasons = {
            "whole_texts": "this encoder-decoder is not trained to fill in words, and scores spans after a prompt"
        }
        whole_texts = not is_seq2seq or fills_in(record.architecture)
        return Abilities(generation=is_causal, left_to_right=is_causal, whole_texts=whole_texts, reasons=reasons)

    @contextlib.contextmanager
    def model(self, record):
        from vernacular.inference.model.rendering import try_template

        with super().model(record), self.base.model(record) as loaded:
            try_template(loaded)
            self.loaded, self.device, self.is_asynchronous = loaded, loaded.device, loaded.is_asynchronous
            self.shares_prompts = loaded.kind == "causal"
            try:
                yield
            finally:
                self.loaded = None

    @property
    def is_open(self):
        return self.base.loaded is not None

    def prepare(self, kind, requests):
        if kind is SCORES:
            from vernacular.inference.scoring.score import Scoring

            return Scoring(self.loaded, requests, strategy=self.record.strategy)
        from vernacular.inference.generation.generate import Generation

        return Generation(self.loaded, requests)

    def compute(self, prepared, journal):
        self.loaded.on_batch = self.on_batch
        prepared.compute(journal)

    def finish(self, prepared):
        return prepared.finish()


class LlamaCpp(Local):
    """A GGUF file, by llama.cpp in this process."""

    code: ClassVar = {
        "scores": ("vernacular.inference.llama.score",),
        "generations": ("vernacular.inference.llama.generate",),
    }
    libraries: ClassVar = ("llama-cpp-python",)
    shares_prompts = is_open = True

    def __init__(self, record, *, threads=None, is_shared=False, requests=()):
        from vernacular.inference.generation.prepare import check_rendering
        from vernacular.inference.llama.model import load

        self.record = record
        check_rendering(record)
        self.loaded = load(record | {"adapter": None}, threads=threads)
        self.device = self.loaded.device

    @contextlib.contextmanager
    def model(self, record):
        from vernacular.inference.llama.model import use_adapter
        from vernacular.inference.model.rendering import try_template

        self.record = record
        with use_adapter(self.loaded, record) if record.adapter else contextlib.nullcontext():
            try_template(self.loaded)
            yield

    def prepare(self, kind, requests):
        if kind is SCORES:
            from vernacular.inference.llama.score import LlamaScoring

            return LlamaScoring(self.loaded, requests, strategy=self.record.strategy)
        from vernacular.inference.llama.generate import LlamaGeneration

        return LlamaGeneration(self.loaded, requests)


class VLLM(Local):
    """The same with texts generated by vLLM."""

    def prepare(self, kind, requests):
        if kind is SCORES:
            return super().prepare(kind, requests)
        from vernacular.inference.generation.generate import VLLMGeneration

        return VLLMGeneration(self.loaded, requests)


class Server(Engine):
    """A model behind a server."""

    code: ClassVar = {  # the probe decides whether the server is asked, not what it answers
        "scores": ("vernacular.inference.server.score",),
        "generations": ("vernacular.inference.server.generate",),
    }

    def __init__(self, record, *, threads=None, is_shared=False, requests=()):
        from vernacular.inference.server.start import start

        super().__init__(record)
        self.served, self.probe_usage = start(record, requests)

    @classmethod
    def abilities(cls, record):
        forms, stated = record.server.forms, record.server.reasons
        reasons = {"scores": stated.get("labels"), "forced_spans": stated.get("spans")}
        reasons |= {"entropies": "not returned by the server", "generation": stated.get("generation")}
        scores, spans, texts = bool(forms.spans or forms.labels), bool(forms.spans), bool(forms.generation)
        return Abilities(scores=scores, forced_spans=spans, entropies=False, generation=texts, reasons=reasons)

    @contextlib.contextmanager
    def model(self, record):
        from vernacular.inference.model.rendering import try_template
        from vernacular.inference.server.start import report_usage

        try:
            with super().model(record):
                try_template(self.served)
                yield
        finally:
            self.served.client.close()
            report_usage(record.name, self.served.client.usage, self.probe_usage)

    def verify(self):
        from vernacular.inference.server.start import verify_answers

        super().verify()
        verify_answers(self.served)

    def prepare(self, kind, requests):
        if kind is SCORES:
            from vernacular.inference.server.score import Scoring

            return Scoring(self.served, requests)
        from vernacular.inference.server.generate import Generation

        return Generation(self.served, requests)

    def compute(self, prepared, journal):
        prepared.compute(journal)

    def finish(self, prepared):
        return prepared.finish()


LLAMA_CPP = "llama.cpp"
ENGINES: dict[str, type[Engine]] = {"transformers": Local, "vllm": VLLM, LLAMA_CPP: LlamaCpp, "server": Server}


def engine_name(record: ModelRecord) -> str:
    """Return the engine of a model: one of ENGINES, or the "module:Class" of another package."""
    if record.server:
        return "server"
    return LLAMA_CPP if record.is_gguf else record.engine_class or record.generation_engine


def engine_of(record: ModelRecord) -> type[Engine]:
    """Return the engine of a model. Raises ModelError if it is another package's and cannot be imported."""
    name = engine_name(record)
    if name in ENGINES:
        return ENGINES[name]
    module, _, class_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), class_name)
    except LOADING_ERRORS as error:
        message = f"model {record.name}: engine_class: {name} cannot be imported ({named(error)})."
        raise ModelError(message) from error
    if not (isinstance(found, type) and issubclass(found, Engine)):
        raise ModelError(f"model {record.name}: engine_class: expected a class derived from Engine, got {name}.")
    return found
