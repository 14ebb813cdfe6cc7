"""Command `server`: a model behind a server -> a record of what it can answer."""

from dataclasses import replace
from pathlib import Path

from vernacular.checkpoints.tokenizers import resolve_tokenizer
from vernacular.commands.common import raise_failure, write_unavailable
from vernacular.config.specs import ServerSpec
from vernacular.core.errors import ModelError
from vernacular.core.fields import Stage, to_json
from vernacular.core.fingerprint import fingerprint
from vernacular.core.library_errors import LOADING_ERRORS, describe_error, wrap_library_errors, wrap_tokenizer_panics
from vernacular.core.model_record import ModelRecord, previous_model, write_model
from vernacular.core.names import displayable, quoted, readable_problem
from vernacular.inference.model.tokenization import load_tokenizer
from vernacular.inference.server.checks import known_answers
from vernacular.inference.server.client import Usage
from vernacular.inference.server.probe import differences, probe
from vernacular.inference.server.served import connect
from vernacular.inference.server.start import describe_usage

# that the probe uses
_SETTINGS = ("source", "revision", "api_key_env", "concurrency", "timeout", "chat", "max_length")


class Server(Stage):
    """Probe a server and record what its model can answer."""

    spec: ServerSpec  # of the rule: what the results depend on
    out: Path  # its record


def server(args: Server) -> str:
    """Probe a server and write the record of its model; an unavailable one gets a record that states why."""
    spec = args.spec
    try:
        raise_failure(args)
        record, usage = probe_server(spec, args.out.parent / "converted", previous_model(args.out))
    except ModelError as error:
        return write_unavailable(args, "server", str(error))
    write_model(args.out, record, keep=True)
    return f"server: {describe(record)} ({describe_usage(usage)})"


def describe(record: ModelRecord) -> str:
    """Return one line: the model, and how texts, spans and labels are obtained."""
    forms = {kind: getattr(record.server.forms, kind) for kind in ("generation", "spans", "labels")}
    parts = [f"{kind} by {form}" if form else f"no {kind}" for kind, form in forms.items()]
    return f"{record.name}: {record.server.model}: {', '.join(parts)}"


def probe_server(spec: ServerSpec, conversion_dir: Path, known: ModelRecord | None) -> tuple[ModelRecord, Usage]:
    """Probe a server and return (record of its model, number of requests and tokens).

    Args:
        spec: Settings of the model (`dependencies.server_spec`).
        conversion_dir: Directory for its tokenizer.
        known: An earlier record; its identity is kept if the server answers as it did then.

    Raises:
        ModelError: The server or its tokenizer cannot be used.
    """
    name = spec.name
    settings = {key: value for key, value in to_json(spec).items() if key in _SETTINGS}
    record = ModelRecord(name=name, kind="causal", architecture="server", **settings)
    try:
        with wrap_library_errors():
            files = resolve_tokenizer(name, spec.tokenizer, conversion_dir) if spec.tokenizer else None
    except LOADING_ERRORS as error:
        raise ModelError(f"model {name}: the tokenizer cannot be read: {describe_error(error, record)}") from error
    if files:
        record |= {"tokenizer": spec.tokenizer, "tokenizer_revision": files.revision}
        record |= {"directory": files.directory, "contents": files.contents}
    answers = known_answers(name, spec.reference, conversion_dir) if spec.reference else None
    client = connect(record)
    try:
        tokenizer = load_tokenizer(record, record.directory) if files else None
        with wrap_tokenizer_panics(record):
            found = probe(record, client, tokenizer, answers, model=spec.model)
    finally:
        client.close()
    if problem := readable_problem(found.model):
        raise ModelError(f"model {name}: the name of the model on the server, {quoted(found.model)}, {problem}.")
    reported = {key: displayable(text) if isinstance(text, str) else text for key, text in found.reported.items()}
    found = replace(found, known=answers, reported=reported)
    subject = [found.model, record.revision, files and files.fingerprint]
    same = (
        known is not None
        and known.server is not None
        and known.subject == subject
        and differences(known.server, found) is None
    )
    if same:  # the first answers remain those to compare with: small differences do not add up
        found = replace(found, answers=known.server.answers)
    identity = known.identity if same else fingerprint(found.answers)
    record |= {"server": found, "subject": subject, "identity": identity, "parameters": reported.get("parameters")}
    return record | {"fingerprint": fingerprint([*subject, identity])}, client.usage
