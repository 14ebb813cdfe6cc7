"""Work units of an inference job: evaluations or shards of them, with their keys in the store.

A key is a hash of the model, its options, the requests and the engine. Complete requests are read one work unit at a
time: their rows repeat the few-shot prefix and its messages, and those of one large evaluation would take gigabytes.
"""

import contextlib
import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from vernacular.checkpoints.files import mentions_reasoning, read_json, template_files, template_texts
from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import code_fingerprint, content_hash, fingerprint, version_of
from vernacular.core.metadata import Outcome, RequestsMetadata, not_applicable, unavailable
from vernacular.core.model_record import ModelRecord
from vernacular.inference.engine import ENGINES, Engine, engine_name, engine_of
from vernacular.inference.model.language_codes import missing_language
from vernacular.inference.schema import GENERATIONS, SCORES, output_schema
from vernacular.protocols.schema import REQUESTS, generated_tokens, reasoning_tokens, request_cost

_KEY_COLUMNS = ["item_id", "role", "request_id"]
_SIZE_COLUMNS = ["text", "max_new_tokens", "longest_target"]
_REPEATED_COLUMNS = ("role", "kind", "prefix", "messages", "few_shot_examples", "stop", "extras")


@dataclass(frozen=True)
class WorkUnit:
    """A work unit: one evaluation, or one shard of it, for one model."""

    evaluation: str
    path: Path  # of the requests file
    n_rows: int  # number of requests in this unit
    item_ids: pa.Array | None  # IDs of the items in this unit; None: all
    kind: Kind
    key: str
    full_key: str  # the key of the complete evaluation; equal to `key` if it is not split

    def requests(self, columns: list[str] | None = None) -> pa.Table:
        """Read the unit's rows of REQUESTS, or these `columns`, item_id among them; repeated texts are encoded."""
        table = artifacts.read(self.path, REQUESTS, columns=columns, dictionary_columns=_REPEATED_COLUMNS)
        return table if self.item_ids is None else table.filter(pc.is_in(table["item_id"], self.item_ids))


def work_units(record: ModelRecord, request_files: dict[str, Path], shard: tuple[int, int] = (0, 1)) -> list[WorkUnit]:
    """Return the work units of shard k of n that this model can run, some of them without rows."""
    index, count = shard
    columns = _KEY_COLUMNS if count == 1 else _KEY_COLUMNS + _SIZE_COLUMNS
    kinds, tables, rendered, reasoning = {}, {}, {}, {}
    for evaluation, path in request_files.items():
        metadata = artifacts.metadata(path, REQUESTS)
        if exclusion(record, metadata) is None:
            kinds[evaluation] = output_schema(metadata)
            tables[evaluation] = artifacts.read(path, REQUESTS, columns=columns)
            rendered[evaluation] = record.rendering if is_rendered(record, metadata) else {}
            if record.kind == "seq2seq":
                rendered[evaluation] |= {"languages": [*metadata.languages, record.language_codes]}
            if count > 1 and is_rendered(record, metadata) and metadata.default_budgets + metadata.reasoning_tokens:
                tokens = reasoning_tokens(metadata, record.gen_kwargs) if thinks_in_chats(record) else 0
                reasoning[evaluation] = tokens / tables[evaluation].num_rows
    units = []
    for evaluation, shard_tables in split_into_shards(tables, count, reasoning).items():
        kind, table, rendering = kinds[evaluation], shard_tables[index], rendered[evaluation]
        key = evaluation_key(record, table, kind, rendering)
        full_key = key if count == 1 else evaluation_key(record, tables[evaluation], kind, rendering)
        item_ids = None if count == 1 else table["item_id"].unique()
        units.append(WorkUnit(evaluation, request_files[evaluation], table.num_rows, item_ids, kind, key, full_key))
    return units


def exclusion(record: ModelRecord, metadata: RequestsMetadata) -> Outcome | None:
    """Return the outcome of an evaluation that this model cannot run; None if it can."""
    if not metadata.outcome.is_complete:
        return metadata.outcome
    if record.unavailable:
        return unavailable(record.unavailable)
    reason = not_answerable(record, metadata)
    return not_applicable(reason) if reason else None


def not_answerable(record: ModelRecord, metadata: RequestsMetadata) -> str | None:
    """Return why a model's engine cannot compute the outputs of an evaluation; None if it can."""
    abilities = engine_of(record).abilities(record)
    if metadata.causal_only and not abilities.left_to_right:
        return f"{metadata.protocol} requires a causal model, and {record.name} is a masked model"
    if metadata.causal_only and metadata.whole_texts and record.kind == "seq2seq":
        return f"{metadata.protocol} requires a causal model, and {record.name} is an encoder-decoder"
    if output_schema(metadata) is GENERATIONS:
        reason = abilities.reason("generation")
    elif metadata.whole_texts and abilities.reason("whole_texts"):
        reason = abilities.reason("whole_texts")
    else:
        reason = abilities.reason("scores" if metadata.label_spans else "forced_spans")
    if reason := reason or missing_language(record, metadata):
        return f"{metadata.protocol} is not possible: {reason}"
    if metadata.chat_only and record.chat is False:
        return f"{metadata.protocol} asks in chats, and chat is false of {record.name}"
    if metadata.chat_only and not _chats(record)[0]:
        return f"{metadata.protocol} asks in chats, and {record.name} has no chat template"
    if output_schema(metadata) is SCORES and is_rendered(record, metadata) and thinks_in_chats(record):
        plain = "chat: false in the entry" if metadata.chat_only else "chat: auto"
        return (
            f"{metadata.protocol} scores what stands at the beginning of the answer, where {record.name} reasons; set "
            f"enable_thinking: false, or {plain} for plain text"
        )
    return None


def thinks_in_chats(record: ModelRecord) -> bool:
    """Return whether chats with a model ask for reasoning, from its tokenizer alone."""
    return _chats(record)[1]


def _chats(record: ModelRecord) -> tuple[bool, bool]:
    """Return (whether a model can be asked in chats, whether they ask for reasoning)."""
    if record.server and not (record.directory and record.server.tokenizer == "local"):
        # with the server's own tokenizer, token IDs are sent, and its template is not known
        return record.server.forms.chat and record.server.tokenizer is None, record.server.reasons_by_default
    if not (record.rendering or record.trust_remote_code or record.is_gguf):  # its files and record answer it
        directory = Path(record.tokenizer_directory)
        settings = directory / "tokenizer_config.json"
        template = read_json(record.name, settings).get("chat_template") if settings.is_file() else None
        if not template and not any(file.stat().st_size for file in template_files(directory)):
            return False, False
        if record.reasons is not None or not mentions_reasoning(template_texts(directory)):
            return True, bool(record.reasons)
    key = record.tokenizer_directory, record.fingerprint, str(record.rendering)
    if key not in _CHATS:
        from vernacular.inference.generation.reasoning import thinks
        from vernacular.inference.model.rendering import has_template, open_template

        _CHATS[key] = (True, False)
        with contextlib.suppress(ModelError):  # the job states why, where it needs the template
            loaded = open_template(record, record.tokenizer_directory)
            _CHATS[key] = (has_template(loaded), False)
            _CHATS[key] = (has_template(loaded), thinks(loaded))
    return _CHATS[key]


_CHATS: dict[tuple, tuple[bool, bool]] = {}

_BATCH_ROWS = 5_000


def split_into_shards(
    tables: dict[str, pa.Table], shards: int, reasoning: dict[str, float] | None = None
) -> dict[str, list[pa.Table]]:
    """Split each evaluation's requests into `shards` tables by estimated cost; entry k is the share of shard k.

    `reasoning`: largest number of tokens of reasoning per request, by evaluation. Shares may be empty.

    >>> table = pa.table({"item_id": ["a", "b"], "prefix": ["", ""], "text": ["x" * 7, "x" * 7],
    ...                 "max_new_tokens": [None, None], "longest_target": [None, None]})
    >>> [part["item_id"].to_pylist() for part in split_into_shards({"e": table}, 2)["e"]]
    [['a'], ['b']]
    """
    if shards == 1:
        return {evaluation: [table] for evaluation, table in tables.items()}
    costs = {evaluation: _costs(table, (reasoning or {}).get(evaluation, 0)) for evaluation, table in tables.items()}
    total_cost = sum(cost for item_costs in costs.values() for cost in item_costs.values())
    cumulative_cost = 0.0
    shard_tables = {}
    for evaluation, table in tables.items():
        shard_of = {}
        for item, cost in costs[evaluation].items():
            shard_of[item] = min(int((cumulative_cost + cost / 2) / total_cost * shards), shards - 1)
            cumulative_cost += cost
        row_shards = [shard_of[item] for item in table["item_id"].to_pylist()]
        masks = (pa.array([own == shard for own in row_shards]) for shard in range(shards))
        shard_tables[evaluation] = [table.filter(mask) for mask in masks]
    return shard_tables


def _costs(table: pa.Table, n_reasoning: float) -> dict[str, float]:
    """Return the estimated tokens of each item, in table order, without the few-shot prefix, which is computed once."""
    costs: dict[str, float] = {}
    columns = ["item_id", *_SIZE_COLUMNS]
    for batch in table.select(columns).to_batches(max_chunksize=_BATCH_ROWS):
        rows = zip(*(batch[name].to_pylist() for name in columns), strict=True)
        for item, text, max_new_tokens, longest_target in rows:
            n_generated = generated_tokens(max_new_tokens, longest_target) + n_reasoning
            # 1: even an empty request has a cost
            costs[item] = costs.get(item, 0.0) + 1 + request_cost(len(text), n_generated)
    return costs


# Options of a model record that change its outputs by more than float noise; device and batch size do not.
OPTIONS = ("kind", "dtype", "quantization", "bos", "tokenizer_pipeline", "max_length", "chat", "strategy",
           "generation_engine", "engine_class", "trust_remote_code")  # fmt: skip


@functools.cache
def engine_version(kind: Kind, engine: str = "transformers") -> str:
    """Return a hash of the code and library versions behind artifacts of `kind`; of another package, all its files."""
    code = code_fingerprint(*ENGINES[engine].code[kind.name]) if engine in ENGINES else _hash_of_package(engine)
    libraries = ENGINES.get(engine, Engine).libraries  # their versions are read without importing them
    return fingerprint([code, *(f"{name} {version_of(name)}" for name in libraries)])[:16]


def _hash_of_package(engine: str) -> str | None:
    """Return a hash of the package, or single module, of "module:Class"; None if Python does not find it."""
    found = importlib.util.find_spec(engine.partition(":")[0].partition(".")[0])
    if found is None:
        return None
    directories = [Path(directory) for directory in found.submodule_search_locations or []]
    files = [(file.relative_to(root).as_posix(), file) for root in directories for file in sorted(root.rglob("*.py"))]
    return fingerprint([[name, content_hash(str(file))] for name, file in files or [(found.name, found.origin)]])


def is_rendered(record: ModelRecord, metadata: RequestsMetadata) -> bool:
    """Return whether a chat template may be applied to the requests of an evaluation; see `rendering.uses_chat`."""
    generates = metadata.request_kind == "generate"
    uses_turns = record.chat is not False if generates else record.chat is True
    return metadata.chat_only or (metadata.has_turns and uses_turns)


def evaluation_key(record: ModelRecord, requests: pa.Table, kind: Kind, rendering: dict | None = None) -> str:
    """Return the store key of an evaluation, whatever its row order; `rendering`: settings of rendered prompts."""
    columns = (requests.column(name).to_pylist() for name in _KEY_COLUMNS)
    request_keys = sorted(zip(*columns, strict=True))
    options = {name: getattr(record, name) for name in OPTIONS}
    options |= {"deterministic": True} if record.deterministic else {}  # keys of other models stay
    uses = (record.generation_engine, record.adapter, record.quantization)
    engine = [engine_version(kind, engine_name(record)), *additional_libraries(kind, *uses)]
    return fingerprint([kind.name, record.fingerprint, options, engine, request_keys, *filter(None, [rendering])])[:40]


def additional_libraries(kind: Kind, generation_engine: str, adapter, quantization) -> list[str]:
    """Return the additional libraries that affect the outputs of a model with these settings, with their versions."""
    uses_vllm = generation_engine == "vllm" and kind is GENERATIONS
    is_gguf = ".gguf" in str(getattr(adapter, "directory", adapter))
    libraries = {"vllm": uses_vllm, "peft": bool(adapter) and not is_gguf, "bitsandbytes": bool(quantization)}
    return [f"{name} {version_of(name)}" for name, is_used in libraries.items() if is_used]
