"""A model behind a server: its tokenizer, its forms, and requests that are journaled one by one.

A call is one unit of work with a name that is a hash of its content. An answered one, in the journal, is not repeated.

A model without a local tokenizer has that of the server, from the endpoint `/tokenize` of llama.cpp.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from vernacular.core.errors import ModelError, ServerError
from vernacular.core.logs import Progress
from vernacular.core.model_record import ModelRecord
from vernacular.inference.model.pieces import PieceTokenizer
from vernacular.inference.model.tokenization import AlignmentError, TextModel, special_tokens
from vernacular.inference.model.tokenizers import load_tokenizer
from vernacular.inference.schema import Journal
from vernacular.inference.server.client import ATTEMPTS, Client, RefusedError
from vernacular.inference.server.completions import (
    Completions,
    Echo,
    LabelIds,
    PromptLogprobs,
    TextLabels,
    TopIds,
    count_tokens,
)
from vernacular.inference.server.forms import (
    CHECKS,
    AnswerError,
    Check,
    LabelForm,
    LengthError,
    SpanForm,
    elements,
    read,
    text_of,
)
from vernacular.inference.server.native import LlamaCpp, SGLang


class ServerTokenizer(PieceTokenizer):
    """A tokenizer behind `/tokenize`, which is not below `/v1`."""

    unk_token_id = None

    def __init__(self, client: Client):
        self._client = client
        props = client.get("/props", root=True)
        template = read(props, "chat_template")
        self.chat_template = template if isinstance(template, str) and template else None
        self._tokens: dict[int, bytes] = {}  # the pieces seen so far
        self.bos_token, self.bos_token_id = self._special(read(props, "bos_token"))
        self.eos_token, self.eos_token_id = self._special(read(props, "eos_token"))

    def _special(self, text) -> tuple[str | None, int | None]:
        ids = [token for token, _ in self.pieces(text)] if isinstance(text, str) and text else []
        return (text, ids[0]) if len(ids) == 1 else (None, None)

    def pieces(self, text: str, *, add_special: bool = False) -> list[tuple[int, bytes]]:
        """Return (ID, bytes) of each token of a text, in which control tokens are read."""
        body = {"content": text, "add_special": add_special, "parse_special": True, "with_pieces": True}
        try:
            entries = read(self._client.post("/tokenize", body, root=True), "tokens")
        except (RefusedError, AnswerError) as error:
            raise AlignmentError(f"the server's tokenizer cannot be used ({error})") from error
        pieces = [(read(entry, "id"), _as_bytes(read(entry, "piece"))) for entry in elements(entries)]
        if not isinstance(entries, list) or any(type(i) is not int or piece is None for i, piece in pieces):
            raise AlignmentError("the server's tokenizer does not return the text of its tokens")
        self._tokens.update(pieces)
        return pieces

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token that a text has contained."""
        return self._tokens.get(token, b"")

    def decode(self, ids: list[int], **_) -> str:
        """Return the text of `ids`."""
        return text_of(read(self._client.post("/detokenize", {"tokens": list(ids)}, root=True), "content"), "text")

    def apply_chat_template(self, messages: list[dict], *, chat_template, tokenize, date_string, **arguments) -> str:
        """Return the prompt of a chat, rendered by the server."""
        arguments.pop("add_generation_prompt")
        body = {"messages": messages} | ({"chat_template_kwargs": arguments} if arguments else {})
        try:
            return text_of(read(self._client.post("/apply-template", body, root=True), "prompt"), "prompt")
        except (RefusedError, AnswerError) as error:
            raise ValueError(f"the server did not render the chat: {error}") from error


def _as_bytes(piece) -> bytes | None:
    """Return the bytes of a piece: a string, or a list of byte values if it is no complete text; None: neither."""
    if isinstance(piece, list) and all(type(value) is int and 0 <= value < 256 for value in piece):
        return bytes(piece)
    return piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else None


CONCURRENCY, TIMEOUT = 4, 600.0  # requests at a time; seconds without a byte of a response
_TRIMMED, _UNCOUNTED = 8, 0.02  # tokens, and share of them, that chat templates strip around the texts of a chat
_UNCOMPARED = (
    "log-probabilities of a server that were not compared with a local copy (reference): a temperature that it applies "
    "to all of its values would not be seen"
)
TOP = (20, 5)  # lengths of the lists of most probable tokens that servers offer


@dataclass(kw_only=True)
class ServedModel(TextModel):
    """A model behind a server; its forms are how its outputs are obtained, as decided by the probe."""

    client: Client
    completions: Completions | None = None
    spans: SpanForm | None = None
    labels: LabelForm | TextLabels | None = None
    native: LlamaCpp | None = None  # generates instead of `completions`
    counter: Any = None  # the local tokenizer, which counts tokens where texts are sent

    def compare_length(self, prompt: str | list[dict], read_tokens: int | None) -> None:
        """Raise LengthError if the server read fewer tokens of a text than the local tokenizer counts."""
        if self.counter is not None and read_tokens is not None:
            expected = count_tokens(self.counter, prompt) + self.record.server.offset
            if read_tokens < expected * (1 - _UNCOUNTED) - _TRIMMED:
                raise LengthError(f"of a prompt of {expected} tokens, the server read {read_tokens}")

    def uncounted(self, used: dict) -> list[str]:
        """Return that prompts may have been cut, if some answers did not state the number of tokens."""
        text = "length of prompts: not reported by the server, which may have cut them"
        return [text] if used["uncounted"] else []

    def metadata(self) -> dict:
        """Return the metadata of the model and its server for an artifact."""
        server = self.record.server
        is_compared = any(c["check"] == Check.KNOWN and not c["seen"].startswith("not ") for c in server.checks)
        returns_values = bool(server.forms.spans or server.forms.labels)
        return super().metadata() | {
            "loading": [_UNCOMPARED] if returns_values and not is_compared else [],
            "server": {"source": self.record.source, "model": server.model, **server.reported},
            "forms": asdict(server.forms),
            "probe": server.checks,
            "sampling_fields": self.completions.fields,
        }

    def answer_all(
        self,
        calls: list,
        answer: Callable[[Any], dict],
        journal: Journal,
        label: str,
        requests: pa.Table,
        names: dict[str, str],
    ) -> dict:
        """Return {name: answer} of all calls, by `call.name`, from the journal or `answer(call)`, in JSON-like values.

        `names`, {request ID: name of its call}, and `requests` are for messages. A refused request, or a prompt that is
        not read completely, has {"error": reason}; a malformed answer is not in the journal.

        Raises ServerError if the server cannot be reached, and ModelError if a response is not what the probe found.
        """
        answers = {call.name: rows[0] for call in calls if (rows := journal.get(call.name))}
        pending = [call for call in calls if call.name not in answers]

        def attempt(call) -> dict:
            with self.client.stated.flags() as flags:
                try:
                    result = answer(call)
                except RefusedError as error:
                    return {"error": f"the server refused the request ({error})"}
                except LengthError as error:
                    return {"error": str(error)}
                except AnswerError as error:
                    request = next(request for request, name in names.items() if name == call.name)
                    item = requests["item_id"][requests["request_id"].to_pylist().index(request)].as_py()
                    problem = "no valid answer from the server"
                    if error.check is not None:
                        check = f"check {error.check} ({CHECKS[error.check]})"
                        problem = f"the server fails {check}, which it passed at the start"
                    raise ModelError(f"model {self.record.name}: item {item}: {problem}: {error}.") from error
            return result | {"flags": sorted(flags)} if flags else result

        try:
            with Progress(label, len(calls), "request") as progress:
                progress.advance(len(answers))
                for call, result in self.client.map(attempt, pending):
                    answers[call.name] = result
                    progress.advance()
                    with journal.defer_signals():
                        journal.add(call.name, [result])
        except ServerError as error:
            raise ServerError(f"model {self.record.name}: {error}") from error
        finally:
            journal.flush()
        return answers


def connect(record: ModelRecord, *, attempts: int = ATTEMPTS) -> Client:
    """Return a client for the server of a model. Raises ModelError if the key's variable is not set."""
    key_name = record.api_key_env
    variable = f"the environment variable {key_name} (api_key_env)"
    if key_name and not os.environ.get(key_name):
        raise ModelError(f"model {record.name}: {variable} is not set, so the server cannot be used.")
    key = os.environ[key_name] if key_name else None
    if key is not None and (key.strip() != key or not key.isascii() or not key.isprintable()):
        expected = "expected printable ASCII characters, without spaces or line ends around them"
        raise ModelError(f"model {record.name}: the value of {variable} cannot be sent in a header: {expected}.")
    options = {"concurrency": record.concurrency or CONCURRENCY, "timeout": record.timeout or TIMEOUT}
    return Client(record.source, key=key, key_name=key_name, attempts=attempts, **options)


def wrap_server(record: ModelRecord, client: Client, tokenizer: Any) -> ServedModel:
    """Return a served model with `tokenizer` (None: unknown) and without forms; `record.server` has its lengths."""
    server = record.server
    size = server.vocabulary or (len(tokenizer) if hasattr(tokenizer, "__len__") else None)
    return ServedModel(
        record=record,
        kind="causal",
        tokenizer=tokenizer,
        max_length=min(filter(None, (server.max_length, record.max_length)), default=None),
        n_embeddings=size or 2**31,
        client=client,
        **(special_tokens(tokenizer) if tokenizer else {}),
    )


def open_server(record: ModelRecord, *, attempts: int = ATTEMPTS) -> ServedModel:
    """Return the served model of a complete record, with the forms that its probe selected.

    Raises ModelError without key or tokenizer, and ServerError if its own tokenizer cannot be reached.
    """
    client = connect(record, attempts=attempts)
    server, counter = record.server, None
    tokenizer = load_tokenizer(record, record.directory) if record.directory else None
    if server.tokenizer == "server":
        try:
            tokenizer = ServerTokenizer(client)
        except (AlignmentError, AnswerError, RefusedError) as error:
            raise ModelError(f"{client.source}: the server's tokenizer cannot be used ({error}).") from error
    elif server.tokenizer is None:
        tokenizer, counter = None, tokenizer if server.offset is not None else None
    served = wrap_server(record, client, tokenizer)
    served.counter = counter
    client.stated.expected = server.stated
    served.completions = Completions(client, server.model, server.fields, server.limit)
    forms = server.forms
    native = None if tokenizer is None else LlamaCpp(client, served.n_embeddings, server.whole_token)
    served.native = native if forms.generation == "native" else None
    served.spans = next((form for form in span_forms(served, native) if form.name == forms.spans), None)
    served.labels = next((form for form in label_forms(served, native) if form.name == forms.labels), None)
    return served


def span_forms(served: ServedModel, native: LlamaCpp | None) -> list[SpanForm]:
    """Return all forms of the log-probabilities of a text, in the order in which the probe tries them."""
    forms = [PromptLogprobs(served.completions), SGLang(served.client), Echo(served.completions)]
    return [] if served.tokenizer is None else forms + ([native] if native else [])


def label_forms(served: ServedModel, native: LlamaCpp | None) -> list:
    """Return all forms of the log-probabilities of labels in the order to try; lists, which may lack one, last."""
    by_id = [LabelIds(served.completions), SGLang(served.client), *([native] if native else [])]
    by_id += [TopIds(served.completions, k) for k in TOP]
    by_text = [TextLabels(served.completions, k, chat=served.record.chat is True) for k in TOP]
    return (by_id if served.tokenizer is not None else []) + by_text
