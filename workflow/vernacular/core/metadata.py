"""The metadata of artifacts: what every artifact states (its inputs and its outcome), and what those of a stage add."""

import dataclasses
import functools
import typing
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType

from vernacular.core.fields import Fields

COMPLETE, NOT_APPLICABLE, UNAVAILABLE = "complete", "not applicable", "unavailable"


@dataclass(frozen=True)
class Outcome:
    """Whether an artifact was computed; if not, it has no rows, and neither has what is computed from it."""

    state: str = COMPLETE  # COMPLETE, NOT_APPLICABLE or UNAVAILABLE
    reason: str = ""  # why there are no rows; of a complete evaluation in a job's status, how it was completed
    awaits: str | None = None  # directory of a deleted checkpoint, without which this is not applicable
    missing: dict[str, str] = field(default_factory=dict)  # parts that a complete artifact lacks: {name: reason}

    @property
    def is_complete(self) -> bool:
        """Whether the artifact was computed, except for the parts that are `missing`."""
        return self.state == COMPLETE

    @property
    def may_try_again(self) -> bool:
        """Whether another run may compute what this one could not."""
        is_back = self.awaits is not None and Path(self.awaits).exists()
        return self.state == UNAVAILABLE or bool(self.missing) or is_back


def unavailable(reason: str) -> Outcome:
    """Return the outcome of what could not be computed, but may be by another run."""
    return Outcome(UNAVAILABLE, reason)


def not_applicable(reason: str, *, awaits: str | None = None) -> Outcome:
    """Return the outcome of what cannot be computed by any run, or by none before `awaits` exists again."""
    return Outcome(NOT_APPLICABLE, reason, awaits)


SEPARATOR = ", "  # of the names of models or evaluations in a cell of the notes


def note(
    kind: str, text: str, *, model: str | None = None, evaluation: str | None = None, count: int | None = None
) -> dict:
    """Return a note; without a model or evaluation, it is of all."""
    return {"model": model, "evaluation": evaluation, "kind": kind, "note": text, "count": count}


def split_list(text: str) -> list[str]:
    """Return the names of a cell "models" or "evaluations".

    >>> split_list("a, b"), split_list("")
    (['a', 'b'], [])
    """
    return text.split(SEPARATOR) if text else []


class Metadata(Fields):
    """What every artifact states. A field that is None is not known, or does not apply; `details` are for people."""

    fingerprint: str | None = None  # of all inputs
    outcome: Outcome = Outcome()


class Source(Fields):
    """Where the rows of a dataset come from."""

    kind: str | None = None  # "hub", "url", "file", "samples", "treebank", "lm_eval"
    sha256: str | None = None  # of the raw rows, evaluated split first; for lm-eval, of the documents
    repository: str | None = None  # on the Hub; for lm-eval, those of its tasks
    url: str | None = None
    file: str | None = None  # as in the task file, or the path of a user's file
    directory: str | None = None  # of samples
    config: str | None = None  # of the repository
    split: str | None = None  # evaluated
    revision: str | None = None  # commit of the repository
    license: str | None = None
    tasks: dict[str, str] | None = None  # of lm-eval, with their versions
    release: str | None = None  # of lm-eval: its version and the hash of its code
    details: dict = field(default_factory=dict)  # few-shot split, files read and their hash, counts of a treebank, …


class RowCounts(Fields):
    """Rows of a dataset, or of its few-shot examples."""

    read: int = 0
    kept: int = 0
    evaluated: int | None = None  # after a limit; None for few-shot examples
    duplicates: int = 0  # exact repeats
    dropped: dict[str, int] = field(default_factory=dict)  # rows by reason
    first_dropped: dict[str, str] = field(default_factory=dict)  # the first such row, by reason
    repaired: dict[str, int] = field(default_factory=dict)  # rows by reason


class ItemsMetadata(Metadata):
    """Metadata of items; without rows, only the task is known."""

    task: str | None = None
    key: str | None = None  # hash of what the rule's spec states of the dataset
    language: str | None = None
    source: Source | None = None
    rows: RowCounts | None = None
    few_shot_examples: RowCounts | None = None
    expected_rows: int | None = None  # of the evaluated split, as in the task file
    limit: int | None = None  # largest number of evaluated items
    seed: int = 0  # of the sample that a limit draws
    citation: str | None = None
    script: str | None = None  # of most letters of the texts (ISO 15924)
    warnings: list[str] = field(default_factory=list)  # sentences


class RequestsMetadata(Metadata):
    """Metadata of requests: the evaluation, and what inference must know of its protocol."""

    protocol: str
    request_kind: str = "score"  # or "generate"
    causal_only: bool = False  # whether masked models cannot answer the requests
    evaluation: str | None = None
    task: str | None = None
    language: str | None = None
    input_language: str | None = None  # of translations; None: that of the items
    output_language: str | None = None  # of translations; None: that of the items
    shots: int | None = None
    seed: int | None = None
    style: str | None = None
    items: ItemsMetadata | None = None
    prompt: str | None = None  # name of the wording; None: the default
    options: dict = field(default_factory=dict)  # of the protocol
    chat_only: bool = False  # whether a model needs a chat template for the requests
    label_spans: bool = False  # whether the spans are labels, of which a server may state the log-probabilities
    has_turns: bool = False  # whether the requests are also chat turns
    whole_texts: bool = False  # whether no scored text has a prompt
    few_shot_examples: list[str] = field(default_factory=list)  # IDs of the items, in the order of the prompt
    held_out: list[str] = field(default_factory=list)  # IDs of the evaluated items with their content
    skipped: dict[str, str] = field(default_factory=dict)  # reason by item ID
    prefix: str = ""  # the few-shot prefix
    prompts: str | None = None  # fingerprint of the prompt lines
    warnings: list[str] = field(default_factory=list)  # what is suspicious in the prompts
    characters: int = 0  # to read
    new_tokens: int = 0  # to generate, without reasoning
    reasoning_tokens: int = 0  # at most, where the evaluation sets think_max_toks
    default_budgets: int = 0  # texts to generate with the budget of the model, if it reasons

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The languages of prompts and outputs."""
        return self.input_language or self.language, self.output_language or self.language


class AdapterInfo(Fields):
    """The adapter of the model that computed outputs."""

    source: str | None = None
    revision: str | None = None
    type: str | None = None
    rank: int | None = None
    without_effect: bool = False  # whether no output differs from the base's


@dataclass(frozen=True)
class UnusedWeights:
    """Weights in a checkpoint that its architecture does not use."""

    count: int
    first: str  # name


class ModelInfo(Fields):
    """The model that computed outputs, as it was loaded, and its machine."""

    name: str | None = None
    fingerprint: str | None = None
    kind: str | None = None  # "causal", "masked" or "seq2seq"
    dtype: str | None = None
    device: str | None = None
    quantization: str | dict | None = None
    torch: str | None = None  # version
    transformers: str | None = None  # version
    remote_code: bool = False  # whether custom code of the model was run
    converted_tokenizer: str | None = None  # its file, which transformers converts when it is loaded
    unused_weights: UnusedWeights | None = None
    loading: list[str] = field(
        default_factory=list
    )  # where it is not what a library makes of its files, or not compared
    adapter: AdapterInfo | None = None
    details: dict = field(default_factory=dict)  # revision, architecture, threads, what a server states, …

    @property
    def quantized(self) -> str | None:
        """The name of the quantization: "4bit", "8bit", or its method."""
        stated = self.quantization
        if not isinstance(stated, dict):
            return stated
        bits = next((f"{bits}bit" for bits in (4, 8) if stated.get(f"load_in_{bits}bit")), None)
        return bits or stated.get("quant_method", "quantized") if stated else None


INFILLING = "infilling"  # pseudo-log-likelihood of a text whose words an encoder-decoder fills in


class EngineInfo(Fields):
    """How outputs were computed."""

    name: str | None = None  # "transformers", "vllm", "server: …"; None for scores of a local model
    version: str | None = None  # hash of the code and of the versions of libraries
    strategy: str | None = None  # of scoring: "plain", "prefix", "tree"
    strategies: list[dict] | None = None  # of generation: the way of each group of prompts, in `used`
    fallback: list[str] = field(default_factory=list)  # why slower ways were used
    computed_with: list[str] | None = None  # evaluations that share the computation and differ in the prompt only
    pll: list[str] | None = None  # names of the pseudo-log-likelihoods among the scores
    # of scores: standard deviation of a span's difference between two computations, in nats, by its number of tokens;
    # {"1": 0.0}: equal bit by bit; None: unknown
    noise: dict[str, float] | None = None
    details: dict = field(default_factory=dict)  # self-checks, limits of batches, dropped parts of the journal, …


class TokenizerInfo(Fields):
    """How texts became tokens."""

    bos_policy: str | None = None
    unk_token: str | None = None
    unscored_first_tokens: int | None = None  # requests whose first token nothing precedes
    chat: int | None = None  # requests with a chat template
    has_chat_template: bool | None = None  # whether the tokenizer has one (generations)
    details: dict = field(default_factory=dict)  # class, other tokens, what is dropped from long texts, …


class Counters(Fields):
    """What was computed; of an evaluation in several shards, the sums."""

    requests: int | None = None
    tokens_computed: int | None = None  # through the model, padding included; of a server, in the prompts
    tokens_generated: int | None = None
    seconds: float | None = None  # without loading the model
    details: dict = field(default_factory=dict)  # forward passes, batches, what was sent to a server, …


class OutputsMetadata(Metadata):
    """Metadata of scores and generations, in the store and in the results."""

    evaluation: str | None = None  # None in the store
    requests: str | None = None  # fingerprint of the requests; None in the store
    model: ModelInfo | None = None
    engine: EngineInfo = EngineInfo()
    tokenizer: TokenizerInfo = TokenizerInfo()
    counters: Counters = Counters()
    flags: dict[str, int] = field(default_factory=dict)  # requests by flag (scores)
    journal: list[str] | None = None  # parts that were dropped (generations)
    shards: int | None = None  # in which the evaluation was computed


class SimilaritiesMetadata(Metadata):
    """Metadata of similarities; metrics without an encoder are missing from the outcome."""

    evaluation: str | None = None
    generations: str | None = None  # fingerprint of the generations
    signatures: dict[str, str] = field(default_factory=dict)  # by metric: encoder, layer, versions
    encoders: dict[str, dict] = field(default_factory=dict)  # by metric: name, revision, truncated texts, loading, …
    counts: dict[str, int] = field(default_factory=dict)  # items, empty answers, distinct pairs and texts


class ToolResultsMetadata(Metadata):
    """Metadata of what another tool has computed from outputs."""

    definitions: list[dict] = field(default_factory=list)  # of its metrics
    values: list[dict] = field(default_factory=list)  # rows per METRICS, without labels


FAILURE, WARNING, INFORMATION = "failure", "warning", "information"


class Example(Fields):
    """An item with a symptom, and what shows it."""

    item: str  # ID
    text: str  # beginning of a response, or what was predicted


class Diagnosis(Fields):
    """A symptom that explains the value of an evaluation (`protocols/diagnosis.py`)."""

    code: str
    severity: str  # FAILURE, WARNING or INFORMATION
    sentence: str  # with the counts
    threshold: str  # from which it is reported
    n: int  # items, responses or prompts
    count: int | None = None  # of these, with the symptom
    share: float | None = None  # or the statistic that the threshold refers to
    examples: list[Example] = field(default_factory=list)


class LabelCount(Fields):
    """How often a label is predicted, and how often it is correct."""

    label: str
    predicted: int
    gold: int


class Profile(Fields):
    """How a model answers the items of an evaluation."""

    labels: list[LabelCount] = field(default_factory=list)  # letters or names of classes; [] without
    confusion: list[list[int]] = field(default_factory=list)  # items by correct and predicted label; the last: without
    without_label: int = 0  # items without a prediction, or with a tie
    label_mass: float | None = None  # median probability of all labels together
    top_tokens: dict[str, int] = field(default_factory=dict)  # most probable in place of a label: items
    lengths: list[float] | None = None  # mean characters of the chosen, the correct, and all options


class LanguageCounts(Fields):
    """Languages of generated texts and of correct answers: tags, "other", or "… script" for another one."""

    answered: dict[str, int] = field(default_factory=dict)  # responses, most common first
    gold: dict[str, int] = field(default_factory=dict)  # correct answers
    blocks: dict[str, int] = field(default_factory=dict)  # of joined responses that are too short by themselves
    gold_blocks: dict[str, int] = field(default_factory=dict)
    undecided: int = 0  # responses that are too short
    missing: str | None = None  # why nothing was identified


class ResultsMetadata(Metadata):
    """Metadata of one model's results of one evaluation."""

    evaluation: str | None = None
    dataset: ItemsMetadata | None = None
    few_shot_examples: list[str] | None = None  # IDs of the items, in the order of the prompt
    skipped: dict[str, str] = field(default_factory=dict)  # reason by item ID
    prompt_warnings: list[str] = field(default_factory=list)  # what is suspicious in the prompts
    inference: OutputsMetadata = OutputsMetadata()
    items: int | None = None  # number of rows
    flags: dict[str, int] = field(default_factory=dict)  # items by flag, without what follows a colon
    within_noise: int | None = None  # items whose choice float noise can change; None: the noise is unknown
    metrics: list[dict] = field(default_factory=list)  # definitions by another tool
    repeats: int | None = None  # samples per item
    # metrics without their optional package, and which; or without what the engine states
    not_installed: dict[str, str] = field(default_factory=dict)
    unclosed: float | None = None  # share of responses that end within their reasoning; None: none reasons
    diagnoses: list[Diagnosis] = field(default_factory=list)  # worst first
    profile: Profile | None = None
    language: LanguageCounts | None = None  # of generated texts
    judges: list[str] = field(default_factory=list)  # what readers must know of their values, sentences


class MetricsMetadata(Metadata):
    """Metadata of one model's values."""

    model: str | None = None
    record: dict = field(default_factory=dict)  # of the model
    version: str | None = None  # of this package
    evaluations: dict[str, ResultsMetadata] = field(default_factory=dict)


def encode(metadata) -> dict:
    """Return metadata, or a part of them, as a JSON object: without fields that are None, details beside the fields."""
    return dataclasses.asdict(metadata, dict_factory=_without_none)


def _without_none(items: list[tuple]) -> dict:
    fields = {name: value for name, value in items if value is not None}
    return fields.pop("details", {}) | fields


def decode(cls: type, value: dict):
    """Return the dataclass of a JSON object, unknown keys as its `details`; else raise TypeError or LookupError."""
    hints = _hints(cls)
    details = {name: item for name, item in value.items() if "details" in hints and name not in hints}
    fields = {name: _decode_field(hints[name], item) for name, item in value.items() if name not in details}
    return cls(**fields, **({"details": details} if details else {}))


_hints = functools.cache(typing.get_type_hints)


def _decode_field(hint, value):
    if isinstance(hint, UnionType):
        return None if value is None else _decode_field(typing.get_args(hint)[0], value)
    if typing.get_origin(hint) is dict and dataclasses.is_dataclass(typing.get_args(hint)[1]):
        return {name: decode(typing.get_args(hint)[1], item) for name, item in value.items()}
    if typing.get_origin(hint) is list and dataclasses.is_dataclass(typing.get_args(hint)[0]):
        return [decode(typing.get_args(hint)[0], item) for item in value]
    return decode(hint, value) if dataclasses.is_dataclass(hint) and not isinstance(value, hint) else value
