"""Command `server`: a model behind a server -> a record of what it can answer."""

from pathlib import Path

from vernacular.checkpoints.tokenizers import resolve_tokenizer
from vernacular.commands.batch import raise_failure, write_unavailable
from vernacular.core.errors import ArtifactError, ModelError
from vernacular.core.failures import LOADING_ERRORS, describe_error, wrap_library_errors, wrap_tokenizer_panics
from vernacular.core.fingerprint import fingerprint
from vernacular.core.names import displayable, quoted, readable_problem
from vernacular.core.records import backup_path, read_record, write_record
from vernacular.inference.server.client import Usage
from vernacular.inference.server.probe import differences, probe
from vernacular.inference.server.reference import known_answers
from vernacular.inference.server.served import connect, load_tokenizer
from vernacular.inference.server.start import describe_usage


def server(args) -> str:
    """Probe a server and write the record of its model; an unavailable one gets a record that states why."""
    spec = args.spec
    try:
        raise_failure(args)
        record, usage = probe_server(spec, args.out.parent / "converted", _previous_record(args.out))
    except ModelError as error:
        return write_unavailable(args, str(error))
    for path in (backup_path(args.out), args.out):  # Snakemake deletes an output before recreating it
        write_record(path, record)
    return f"server: {describe(record)} ({describe_usage(usage)})"


def describe(record: dict) -> str:
    """Return one line: the model, and how texts, spans and labels are obtained."""
    forms = record["server"]["forms"]
    parts = [f"{kind} by {forms[kind]}" if forms[kind] else f"no {kind}" for kind in ("generation", "spans", "labels")]
    return f"{record['name']}: {record['server']['model']}: {', '.join(parts)}"


def probe_server(spec: dict, conversion_dir: Path, known: dict | None) -> tuple[dict, Usage]:
    """Probe a server and return (record of its model, number of requests and tokens).

    Args:
        spec: Settings of the model (`dependencies.server_spec`).
        conversion_dir: Directory for its tokenizer.
        known: An earlier record; its identity is kept if the server answers as it did then.

    Raises:
        ModelError: The server or its tokenizer cannot be used.
    """
    name = spec["name"]
    try:
        with wrap_library_errors():
            tokenizer_files = (
                resolve_tokenizer(name, spec["tokenizer"], conversion_dir) if spec.get("tokenizer") else {}
            )
    except LOADING_ERRORS as error:
        raise ModelError(f"model {name}: the tokenizer cannot be read: {describe_error(error, {})}") from error
    directory = tokenizer_files.get("directory")
    answers = known_answers(name, spec["reference"], conversion_dir) if spec.get("reference") else None
    client = connect(spec)
    try:
        tokenizer = load_tokenizer(name, directory) if directory else None
        with wrap_tokenizer_panics({"name": name, "directory": directory}):
            found = probe(spec, client, tokenizer, answers)
    finally:
        client.close()
    if problem := readable_problem(found["model"]):
        raise ModelError(f"model {name}: the name of the model on the server, {quoted(found['model'])}, {problem}.")
    reported = {key: displayable(text) if isinstance(text, str) else text for key, text in found["reported"].items()}
    found |= {"known": answers, "reported": reported}
    subject = [found["model"], spec.get("revision"), tokenizer_files.get("fingerprint")]
    same = known is not None and known.get("subject") == subject and differences(known["server"], found) is None
    if same:  # the first answers remain those to compare with: small differences do not add up
        found |= {"answers": known["server"]["answers"]}
    identity = known["identity"] if same else fingerprint(found["answers"])
    return {
        "name": name,
        "source": spec["source"],
        "kind": "causal",
        "architecture": "server",
        "revision": spec.get("revision"),
        "directory": directory,
        "contents": tokenizer_files.get("contents"),
        "tokenizer": spec.get("tokenizer"),
        "tokenizer_revision": tokenizer_files.get("revision"),
        "parameters": found["reported"].get("parameters"),
        "bytes": None,
        "subject": subject,
        "identity": identity,
        "fingerprint": fingerprint([*subject, identity]),
        "server": found,
        "files_key": None,
    }, client.usage


def _previous_record(path: Path) -> dict | None:
    """Return the last record written to `path`; None if there is none, or none of a server."""
    try:
        record = read_record(backup_path(path))
    except ArtifactError:
        return None
    return record if "server" in record else None
