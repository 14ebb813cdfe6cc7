"""The record of a model or encoder, `resources/models/NAME.json`, and the settings of a run: every field, in one place.

The commands `model`, `encoder` and `server` write a record; all later stages read it. Fields that are null are not
written. A record with a field that is not one of these was written by another version. Records and the status of
inference jobs are small JSON files with a digest.
"""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from vernacular.core.artifacts import write_text
from vernacular.core.errors import ArtifactError
from vernacular.core.fields import Fields
from vernacular.core.fingerprint import fingerprint
from vernacular.core.metadata import MetricsMetadata, Outcome, decode

_DAMAGED = "{}: damaged, or of another version; delete it to rebuild."


def write_record(path, content: dict) -> None:
    """Write a record, or another JSON object, with its digest; a record's `path` ends in `{record name}.json`."""
    content = {**content, "sha256": fingerprint(content)}
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def read_record(path) -> dict:
    """Read a record; raise ArtifactError if the file is missing, damaged, or of another model."""
    record = _read(path)
    expected = Path(path).name.removesuffix(".json")
    if record.get("name") != expected:
        raise ArtifactError(
            f'{path}: expected the record of "{expected}", got that of "{record.get("name")}"; delete it to rebuild.'
        )
    return record


def write_status(path, models: dict[str, dict[str, Outcome]]) -> None:
    """Write the status of an inference job: the outcomes of its evaluations, by model and evaluation."""
    entries = {name: {e: asdict(outcome) for e, outcome in outcomes.items()} for name, outcomes in models.items()}
    write_record(path, {"models": entries})


def read_status(path) -> dict[str, dict[str, Outcome]]:
    """Return the outcomes of an inference job by model and evaluation; raise ArtifactError as `read_record` does."""
    try:
        models = _read(path)["models"]
        return {name: {e: Outcome(**entry) for e, entry in entries.items()} for name, entries in models.items()}
    except (LookupError, AttributeError, TypeError):
        raise ArtifactError(_DAMAGED.format(path)) from None


def _read(path) -> dict:
    try:
        content = json.loads(Path(path).read_text("utf-8"))
        digest = content.pop("sha256")
        is_intact = digest == fingerprint(content)
    except FileNotFoundError:
        raise ArtifactError(f"{path}: file not found.") from None
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        is_intact = False
    if not is_intact:
        raise ArtifactError(_DAMAGED.format(path))
    return content


def backup_path(path: Path) -> Path:
    """Return where the last record is kept, because Snakemake deletes an output before its job recreates it."""
    return path.parent / ".known" / path.name


@dataclass(frozen=True)
class Listing:
    """The files that can change what is loaded from a directory, or from a single file."""

    root: str  # absolute path of the directory, or of the file, whose name in `files` is "." then
    files: dict[str, dict]  # by name relative to the root: its sha256, and the size and times by which it is unchanged
    allow_pickle: bool = False  # whether pickled weights are listed although there are others
    code: bool = False  # whether Python files are listed


@dataclass(frozen=True)
class AdapterRecord:
    """A PEFT adapter on a base model."""

    source: str  # as in the config
    directory: str  # absolute
    revision: str | None  # commit on the Hub
    type: str  # "LORA", …
    rank: int | None  # None: a type without one
    own_tokenizer: bool  # whether its directory has a tokenizer, of the base's vocabulary
    allow_pickle: bool  # whether its weights may be pickled
    contents: Listing  # its files


@dataclass(frozen=True)
class Forms:
    """How the outputs of a server are obtained; None: not at all."""

    generation: str | None = None  # "native" or "ids" (from token IDs), "text" or "chat"
    spans: str | None = None  # name of the form of the log-probabilities of a text
    labels: str | None = None  # name of the form of those of single tokens after a text
    chat: bool = False  # whether chats are answered


@dataclass(frozen=True)
class ServerRecord:
    """What the probe of a server found."""

    model: str  # name of the model in requests
    reported: dict  # what the server states about itself: owned_by, version, file, parameters (a number), …
    max_length: int | None = None  # context length in tokens; None: not reported
    vocabulary: int | None = None  # number of tokens; None: not reported
    tokenizer: str | None = None  # whose: "local" or "server"; None: texts are sent, and no token IDs
    whole_token: int | None = None  # a token whose bytes are complete characters
    offset: int | None = None  # tokens that the server counts in addition to those of a text; None: not constant
    fields: dict = field(default_factory=dict)  # sampling fields that it accepts, with their neutral values
    limit: str | None = None  # name of the field with the largest number of tokens to generate
    forms: Forms = Forms()
    reasons_by_default: bool = False  # whether a short chat begins with reasoning
    reasons: dict[str, str] = field(default_factory=dict)  # why there is no form, by kind; "length": of a cut prompt
    checks: list[dict] = field(default_factory=list)  # check, name, form, passed, and what was seen
    answers: dict = field(default_factory=dict)  # to compare later: values (nats) of texts, and greedy texts
    stated: dict | None = None  # by path: models and system fingerprints that answers state
    known: dict | None = None  # values of a local copy in nats, by text
    trial: bool = False  # whether checks that take a request per token were left out


SWITCHES = ("enable_thinking", "thinking", "reasoning")  # arguments of templates that turn reasoning on or off
EFFORT = "reasoning_effort"  # argument of templates that states how much

# settings that change outputs of rendered prompts only
RENDERING = ("chat_template", "chat_template_args", "enable_thinking", "think_end_token", "system_instruction",
             "gen_kwargs")  # fmt: skip


class Settings(Fields):
    """The settings with which a run evaluates a model; not in the file."""

    dtype: str = "auto"  # of the forward pass
    device: str = "auto"
    quantization: dict | None = None  # arguments of transformers' quantization config
    bos: str = "auto"  # the token that precedes a text
    max_length: int | None = None  # tokens that are read at most, if fewer than the model can
    max_batch_tokens: int | None = None  # tokens per forward, padding included; None: by device and memory
    chat: bool | str = "auto"  # whether the chat template is applied
    chat_template: str | None = None  # name of one of the tokenizer's templates, or the text of another
    chat_template_args: dict | None = None  # arguments of the template
    enable_thinking: bool | None = None  # whether the template asks for reasoning; None: its default
    think_end_token: str | int | None = None  # text or ID that ends reasoning; "none": it does not reason
    system_instruction: str | None = None  # text of the system turn
    gen_kwargs: dict | str | None = None  # of rendered prompts: decoding and numbers of tokens; or "recommended"
    strategy: str = "auto"  # of scoring: the first to try
    language_codes: dict[str, str] | None = None  # of an encoder-decoder: codes of its tokenizer by tag
    deterministic: bool = False  # whether each text is computed alone and without shared parts, in one thread
    generation_engine: str = "transformers"  # library that generates text
    engine_class: str | None = None  # "module:Class" of an engine of another package, which computes all outputs
    trust_remote_code: bool = False  # whether Python files of the model may be run
    api_key_env: str | None = None  # environment variable with the key of a server
    concurrency: int | None = None  # requests at a time
    timeout: float | None = None  # seconds without a byte of a response
    checkpoint: bool = False  # whether it belongs to a series, whose results remain if it is deleted
    libraries: list[str] = field(default_factory=list)  # additional ones that affect the outputs, with versions

    @property
    def rendering(self) -> dict:
        """The settings that are set and change outputs of rendered prompts only."""
        return {key: value for key in RENDERING if (value := getattr(self, key)) is not None}


class ModelRecord(Settings):
    """A model or encoder; a mistyped field is an AttributeError, or a TypeError in `record | changes`."""

    name: str
    source: str | None = None  # as in the config: Hub ID, path, package or address of a server
    unavailable: str | None = None  # why there is none of the following
    kind: str | None = None  # "causal", "masked", "seq2seq" or "encoder"
    architecture: str | None = None  # class of the model in its config; "server"
    directory: str | None = (
        None  # absolute, of the files that are loaded, or a GGUF file; of a server: of its tokenizer
    )
    revision: str | None = None  # commit, version of a package, or of a server as in the config
    fingerprint: str | None = None  # hash of what is loaded: equal for equal outputs
    contents: Listing | None = None  # the files that are loaded
    source_contents: Listing | None = None  # the file that was converted
    parameters: int | None = None  # number; None: pickled
    bytes: int | None = None  # size of the weights on disk
    reasons: bool | None = None  # whether its chat template asks for reasoning by default; None: it has no such thing
    files_key: str | None = None  # state of the files when the record was planned; part of Snakemake's key
    base: str | None = None  # name of the base of an adapter
    adapter: AdapterRecord | None = None
    allow_pickle: bool | None = None  # whether pickled weights may be read: of an encoder, or a setting of the run
    tokenizer_pipeline: str | None = None  # "class": what decides, if it differs from tokenizer.json; None: the file
    layer: int | None = None  # of an encoder, whose vectors are compared; None: the last, or a tuned one
    prefix: str | None = None  # of an encoder, before each text; None: that of its files
    tokenizer: str | None = None  # of a server: source of the local tokenizer, as in the config
    tokenizer_revision: str | None = None  # its commit
    subject: list | None = None  # of a server: model, revision and fingerprint of the tokenizer
    identity: str | None = None  # of a server: hash of its first answers
    server: ServerRecord | None = None

    @property
    def is_gguf(self) -> bool:
        """Whether it is a GGUF file, which llama.cpp runs as it is."""
        return bool(self.directory) and self.directory.endswith(".gguf")

    @property
    def tokenizer_directory(self) -> str | None:
        """The directory of the tokenizer: that of an adapter, if it has one of its own."""
        return self.adapter.directory if self.adapter and self.adapter.own_tokenizer else self.directory

    @property
    def own_contents(self) -> Listing | None:
        """The files of this model alone: of an adapter without its base, of a converted model before its conversion."""
        return self.adapter.contents if self.adapter else self.source_contents or self.contents

    def __or__(self, changes: dict) -> "ModelRecord":
        return replace(self, **changes)

    def as_dict(self) -> dict:
        """Return what is written: JSON-like values, without settings of a run."""
        return {name: v for name, v in asdict(self).items() if v is not None and name not in _SETTINGS}

    @classmethod
    def parse(cls, values: dict, origin) -> "ModelRecord":
        """Return the record with the values of `as_dict`, read from `origin`. Raises ArtifactError for any others."""
        try:
            if unknown := sorted(values.keys() & _SETTINGS):
                raise KeyError(*unknown)
            return decode(cls, values)
        except (TypeError, AttributeError, KeyError) as error:  # a field is missing, no object, or unknown
            found = f" (unknown field: {error.args[0]})" if isinstance(error, KeyError) else ""
            raise ArtifactError(
                f"{origin}: written by another version{found}; the next run writes it again."
            ) from error


_SETTINGS = {setting.name for setting in fields(Settings)}


def recorded_model(metadata: MetricsMetadata) -> ModelRecord:
    """Return the model whose metrics file has this metadata."""
    return ModelRecord.parse(metadata.record, "metadata of metrics")


def read_model(path) -> ModelRecord:
    """Read a record; raise ArtifactError if the file is missing, damaged, of another model, or of another version."""
    return ModelRecord.parse(read_record(path), path)


def previous_model(path) -> ModelRecord | None:
    """Return the last record that was written to `path` with a copy; None if there is none."""
    try:
        return read_model(backup_path(Path(path)))
    except ArtifactError:
        return None


def write_model(path, record: ModelRecord, *, keep: bool = False) -> None:
    """Write a record to `path`; `keep`: also a copy for `previous_model`, because Snakemake deletes outputs."""
    for file in (backup_path(Path(path)), path) if keep else (path,):
        write_record(file, record.as_dict())
