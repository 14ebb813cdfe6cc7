"""A model behind a server, with the interface of a loaded model: tokenizer, lengths, options and metadata."""

import os
from dataclasses import dataclass
from typing import Any

from transformers import AutoTokenizer

from vernacular.core.errors import ModelError
from vernacular.core.failures import LOADING_ERRORS, describe_error, wrap_library_errors
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.model.tokenization import AlignmentError
from vernacular.inference.server.client import Client, RefusedError
from vernacular.inference.server.completions import Completions, Echo, LabelIds, PromptLogprobs, TopIds, count_tokens
from vernacular.inference.server.forms import AnswerError, LabelForm, LengthError, SpanForm
from vernacular.inference.server.llama_cpp import LlamaCpp
from vernacular.inference.server.sglang import SGLang
from vernacular.inference.server.text_labels import TextLabels
from vernacular.inference.server.tokenizer import ServerTokenizer
from vernacular.types import ModelRecord

CONCURRENCY, TIMEOUT = 4, 600.0  # requests at a time; seconds without a byte of a response
_TRIMMED, _UNCOUNTED = 8, 0.02  # tokens, and share of them, that chat templates strip around the texts of a chat
TOP = (20, 5)  # lengths of the lists of most probable tokens that servers offer


@dataclass
class ServedModel(LoadedModel):
    """A model behind a server; `forms` are how its outputs are obtained, as decided by the probe."""

    client: Client | None = None
    completions: Completions | None = None
    spans: SpanForm | None = None
    labels: LabelForm | TextLabels | None = None
    native: LlamaCpp | None = None  # generates instead of `completions`
    counter: Any = None  # the local tokenizer, which counts tokens where texts are sent

    def compare_length(self, prompt: str | list[dict], read_tokens: int | None) -> None:
        """Raise LengthError if the server read fewer tokens of a text than the local tokenizer counts."""
        if self.counter is not None and read_tokens is not None:
            expected = count_tokens(self.counter, prompt) + self.record["server"]["offset"]
            if read_tokens < expected * (1 - _UNCOUNTED) - _TRIMMED:
                raise LengthError(f"of a prompt of {expected} tokens, the server read {read_tokens}")

    def uncounted(self, used: dict) -> list[str]:
        """Return that prompts may have been cut, if some answers did not state the number of tokens."""
        text = "length of prompts: not reported by the server, which may have cut them"
        return [text] if used["uncounted"] else []

    def metadata(self) -> dict:
        """Return the metadata of the model and its server for an artifact."""
        server = self.record["server"]
        return {
            "name": self.record.get("name"),
            "revision": self.record.get("revision"),
            "fingerprint": self.record.get("fingerprint"),
            "kind": self.kind,
            "max_length": self.max_length,
            "server": {"source": self.record["source"], "model": server["model"], **server["reported"]},
            "forms": server["forms"],
            "probe": server["checks"],
            "sampling_fields": self.completions.fields,
        }


def connect(settings: dict, *, attempts: int | None = None) -> Client:
    """Return a client for the server of a model's settings. Raises ModelError if the key's variable is not set."""
    key_name = settings.get("api_key_env")
    if key_name and not os.environ.get(key_name):
        raise ModelError(
            f"model {settings['name']}: the environment variable {key_name} (api_key_env) is not set, so the server "
            "cannot be used."
        )
    key = os.environ[key_name] if key_name else None
    if key is not None and (key.strip() != key or not key.isascii() or not key.isprintable()):
        raise ModelError(
            f"model {settings['name']}: the value of the environment variable {key_name} (api_key_env) cannot be sent "
            "in a header: expected printable ASCII characters, without spaces or line ends around them."
        )
    options = {} if attempts is None else {"attempts": attempts}
    return Client(
        settings["source"],
        key=key,
        key_name=key_name,
        concurrency=settings.get("concurrency") or CONCURRENCY,
        timeout=settings.get("timeout") or TIMEOUT,
        **options,
    )


def load_tokenizer(name: str, directory: str):
    """Return the tokenizer in `directory`. Raises ModelError if it cannot be loaded."""
    try:
        with wrap_library_errors():
            tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
            tokenizer("a")
    except LOADING_ERRORS as error:
        raise ModelError(
            f"model {name}: the tokenizer in {directory} cannot be loaded: {describe_error(error, {})}"
        ) from error
    return tokenizer


def open_tokenizer(client: Client) -> ServerTokenizer:
    """Return the tokenizer of a server. Raises ModelError if it has none that can be used."""
    try:
        return ServerTokenizer(client)
    except (AlignmentError, AnswerError, RefusedError) as error:
        raise ModelError(f"{client.source}: the server's tokenizer cannot be used ({error}).") from error


def wrap_server(record: ModelRecord, client: Client | None, tokenizer: Any) -> ServedModel:
    """Return a served model with `tokenizer` (None: unknown) and without forms; `record["server"]` has its lengths."""
    server = record["server"]
    ids = tokenizer("a")["input_ids"] if tokenizer else []
    bos_id = tokenizer.bos_token_id if tokenizer else None
    limits = [limit for limit in (server.get("max_length"), record.get("max_length")) if limit]
    size = server.get("vocabulary") or (len(tokenizer) if hasattr(tokenizer, "__len__") else None)
    return ServedModel(
        model=None,
        tokenizer=tokenizer,
        kind="causal",
        device=None,
        max_length=min(limits) if limits else None,
        bos_id=bos_id,
        eos_id=tokenizer.eos_token_id if tokenizer else None,
        adds_bos=bool(ids) and bos_id is not None and ids[0] == bos_id,
        n_embeddings=size or 2**31,
        record=record,
        client=client,
    )


def open_server(record: ModelRecord, *, attempts: int | None = None) -> ServedModel:
    """Return the served model of a complete record, with the forms that its probe selected.

    Raises ModelError if the key is not set or the tokenizer cannot be loaded, and ServerError if the server's own
    tokenizer is needed and cannot be reached.
    """
    client = connect(record, attempts=attempts)
    server, counter = record["server"], None
    tokenizer = load_tokenizer(record["name"], record["directory"]) if record.get("directory") else None
    if server["tokenizer"] == "server":
        tokenizer = open_tokenizer(client)
    elif server["tokenizer"] is None:
        tokenizer, counter = None, tokenizer if server.get("offset") is not None else None
    served = wrap_server(record, client, tokenizer)
    served.counter = counter
    client.stated.expected = server.get("stated")
    served.completions = Completions(client, server["model"], server["fields"], server["limit"])
    forms = server["forms"]
    native = None if tokenizer is None else LlamaCpp(client, served.n_embeddings, server["whole_token"])
    served.native = native if forms["generation"] == "native" else None
    served.spans = next((form for form in span_forms(served, native) if form.name == forms["spans"]), None)
    served.labels = next((form for form in label_forms(served, native) if form.name == forms["labels"]), None)
    return served


def span_forms(served: ServedModel, native: LlamaCpp | None) -> list[SpanForm]:
    """Return all forms of the log-probabilities of a text, in the order in which the probe tries them."""
    forms = [PromptLogprobs(served.completions), SGLang(served.client), Echo(served.completions)]
    return [] if served.tokenizer is None else forms + ([native] if native else [])


def label_forms(served: ServedModel, native: LlamaCpp | None) -> list:
    """Return all forms of the log-probabilities of labels, in the order in which the probe tries them.

    Lists of the most probable tokens, which may lack a label, come last: the probe ignores them if texts can be scored.
    """
    by_id = [LabelIds(served.completions), SGLang(served.client), *([native] if native else [])]
    by_id += [TopIds(served.completions, k) for k in TOP]
    by_text = [TextLabels(served.completions, k, chat=served.option("chat") is True) for k in TOP]
    return (by_id if served.tokenizer is not None else []) + by_text
