"""What a server states about itself, for provenance and never a reason to trust it, and the fields that it accepts.

The fields are sampling fields, the name of the limit, and the kinds of prompts. Some servers refuse every field that
they do not know. All sampling fields are sent if they are accepted, because servers take missing ones from the model's
own settings; else those of OpenAI's API, the temperature alone, or none.
"""

import itertools

from vernacular.core.errors import ModelError, suggest
from vernacular.core.fingerprint import fingerprint
from vernacular.inference.server import checks
from vernacular.inference.server.client import Client, DeniedError, RefusedError
from vernacular.inference.server.completions import LIMITS, Completions
from vernacular.inference.server.forms import (
    EXTENDED,
    STANDARD,
    AnswerError,
    elements,
    file_name,
    one_line,
    read,
    text_of,
)

_LONGEST = 200  # characters of what a server says about itself
_PATHS = {"version": "/version", "props": "/props", "info": "/get_model_info"}


def identify(client: Client, model: str | None) -> tuple[str, dict, int | None, int | None]:
    """Return (name of the model in requests, what is reported about it, context length, vocabulary size).

    Lengths are None if the server does not report them. Raises ModelError if the server has no model of that name, or
    several and no name is given.
    """
    try:
        listed = [e for e in elements(read(client.get("/models"), "data")) if isinstance(read(e, "id"), str)]
    except (RefusedError, DeniedError) as error:
        if model is None and isinstance(error, DeniedError):
            raise
        listed = []  # some keys are valid for answers only
    entry = next((e for e in listed if model in (e["id"], read(e, "root"))), None)
    if model is None and len(listed) == 1:
        entry = listed[0]
    if entry is None and (listed or model is None):
        names = [one_line(file_name(e["id"]))[:100] for e in listed]
        found = f"lists {', '.join(names[:12])}" if names else "lists no models"
        hint = suggest(model, names) if model else " Set model."
        raise ModelError(f'{client.source}: the server {found}, and the model is "{model or ""}".{hint}')
    answers = {name: _get(client, path) for name, path in _PATHS.items()}
    meta, props, info = read(entry, "meta") or {}, answers["props"], answers["info"]
    template = read(props, "chat_template")
    reported = {
        "listed": bool(entry),
        "chat_template": fingerprint(template)[:16] if isinstance(template, str) else None,
    }
    numbers = {"parameters": read(meta, "n_params"), "slots": read(props, "total_slots")}
    texts = {
        "owned_by": read(entry, "owned_by"),
        "version": read(answers["version"], "version") or read(props, "build_info"),
        "file": file_name(read(props, "model_path") or read(info, "model_path") or read(entry, "root")),
        "file_type": read(props, "model_ftype") or read(meta, "ftype"),
    }
    lengths = (read(entry, "max_model_len"), read(meta, "n_ctx"), read(props, "default_generation_settings", "n_ctx"))
    lengths += (read(props, "n_ctx"), read(info, "max_model_len"))
    max_length = min(filter(None, map(_positive, lengths)), default=None)
    name = entry["id"] if entry else model
    reported |= {key: _positive(value) for key, value in numbers.items()}
    reported |= {
        key: text_of(value, key)[:_LONGEST] if isinstance(value, str) else _positive(value)
        for key, value in texts.items()
    }
    reported = {key: value for key, value in reported.items() if value is not None}
    return text_of(name, "name of a model"), reported, max_length, _positive(read(meta, "n_vocab"))


def _positive(value) -> int | None:
    """Return a positive number that the tables can hold; None for any other value."""
    return value if type(value) is int and 0 < value < 2**63 else None


def _get(client: Client, path: str) -> dict | None:
    try:
        content = client.get(path, root=True)
    except (RefusedError, AnswerError):
        return None
    return content if isinstance(content, dict) else None


CHAT = [{"role": "user", "content": checks.PROMPT}]
_FIELD_SETS = ({**STANDARD, **EXTENDED}, STANDARD, {"temperature": 0.0}, {})  # tried until one is accepted


def negotiate(client: Client, model: str) -> tuple[Completions, set[str]]:
    """Return the completions of a server with the fields that it accepts, and the kinds of prompts: text, chat.

    Raises:
        ModelError: The server generates no text.
        DeniedError: The key is wrong.
    """
    refusals = []
    for fields, limit in itertools.product(_FIELD_SETS, LIMITS):
        completions = Completions(client, model, fields, limit)
        prompts, denied = set(), []
        for name, prompt in (("text", checks.PROMPT), ("chat", CHAT)):
            try:
                completions.complete(prompt, 1)
                prompts.add(name)
            except (RefusedError, AnswerError) as error:
                refusals.append(str(error))
            except DeniedError as error:  # of one kind of prompts, where there is no such endpoint
                denied.append(error)
        if prompts:
            return completions, prompts
        if len(denied) == 2:
            raise denied[0]
    raise ModelError(f"{client.source}: the server generates no text ({refusals[0]}).")
