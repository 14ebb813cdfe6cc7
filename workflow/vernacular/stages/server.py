"""Command `server`: a model behind a server -> a record of what it can answer.

`check --online` probes servers, too. A run that follows within an hour uses this probe, once, if neither the settings
of the model nor the code has changed; the jobs of the model compare the answers again in any case.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vernacular.checkpoints.resolve import resolve_tokenizer
from vernacular.config.specs import ServerSpec
from vernacular.core.errors import ArtifactError, ModelError
from vernacular.core.fields import Stage, to_json
from vernacular.core.fingerprint import code_fingerprint, fingerprint
from vernacular.core.library_errors import LOADING_ERRORS, describe_error, wrap_library_errors, wrap_tokenizer_panics
from vernacular.core.model_record import RENDERING, ModelRecord, previous_model, read_model, write_model
from vernacular.core.names import displayable, quoted, readable_problem
from vernacular.inference.model.tokenizers import load_tokenizer
from vernacular.inference.server.checks import known_answers
from vernacular.inference.server.client import RefusedError, Usage
from vernacular.inference.server.forms import AnswerError
from vernacular.inference.server.probe import differences, identify, probe
from vernacular.inference.server.served import connect
from vernacular.inference.server.start import describe_usage
from vernacular.stages.common import raise_failure, write_unavailable

log = logging.getLogger("vernacular")
_PROBES = "probes"  # directory of those by `check --online`, beside that of the records
_MAX_AGE = 3600  # seconds of a probe that a run uses
# that the probe uses
_SETTINGS = ("source", "revision", "api_key_env", "concurrency", "timeout", "chat", "max_length", *RENDERING)


class Server(Stage):
    """Probe a server and record what its model can answer."""

    spec: ServerSpec  # of the rule: what the results depend on
    out: Path  # its record


def server(args: Server) -> str:
    """Probe a server and write the record of its model; an unavailable one gets a record that states why."""
    known = previous_model(args.out)
    try:
        raise_failure(args)
        if record := _take_probe(args.spec, args.out.parent):
            record, source = _identified(record, known), "probed by `check --online`"
        else:
            record, usage = probe_server(args.spec, args.out.parent / "converted", known, report=log.info)
            source = describe_usage(usage)
    except ModelError as error:
        return write_unavailable(args, "server", str(error))
    write_model(args.out, record, keep=True)
    return f"server: {describe(record)} ({source})"


def keep_probe(spec: ServerSpec, record: ModelRecord, directory: Path) -> None:
    """Write the record of a probe for the next run; `directory`: that of the records of models."""
    write_model(_probe_path(spec, directory), record)


def _take_probe(spec: ServerSpec, directory: Path) -> ModelRecord | None:
    """Return the record of a recent probe with these settings, and delete it; None if there is none."""
    path = _probe_path(spec, directory)
    try:
        is_recent = time.time() - path.stat().st_mtime < _MAX_AGE
        record = read_model(path)
    except (OSError, ArtifactError):
        return None
    path.unlink(missing_ok=True)
    has_tokenizer = record.directory is None or Path(record.directory).exists()
    return record if is_recent and has_tokenizer else None


def _probe_path(spec: ServerSpec, directory: Path) -> Path:
    settings = to_json(replace(spec, code="", libraries={}))
    key = fingerprint([settings, code_fingerprint("vernacular.stages.server")])[:16]
    return directory.parent / _PROBES / key / f"{spec.name}.json"


def describe(record: ModelRecord) -> str:
    """Return one line: the model, and how texts, spans and labels are obtained."""
    forms = {kind: getattr(record.server.forms, kind) for kind in ("generation", "spans", "labels")}
    parts = [f"{kind} by {form}" if form else f"no {kind}" for kind, form in forms.items()]
    parts += ["a short probe, of a trial with few items"] if record.server.trial else []
    return f"{record.name}: {record.server.model}: {', '.join(parts)}"


def probe_server(
    spec: ServerSpec,
    conversion_dir: Path,
    known: ModelRecord | None,
    report: Callable[[str], None],
    *,
    may_start_later: bool = True,
) -> tuple[ModelRecord, Usage]:
    """Probe a server and return (record of its model, number of requests and tokens).

    `conversion_dir`: for its tokenizer. `known`: an earlier record; its identity is kept if the server answers as it
    did then. `report` is called with a line on each check; `may_start_later`: whether a server that does not answer is
    asked again for some minutes. Raises ModelError if server or tokenizer cannot be used.
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
    if not may_start_later:
        with contextlib.closing(connect(record, attempts=1)) as client, contextlib.suppress(AnswerError, RefusedError):
            identify(client, spec.model)
    client = connect(record)
    try:
        tokenizer = load_tokenizer(record, record.directory) if files else None
        with wrap_tokenizer_panics(record):
            found = probe(record, client, tokenizer, answers, model=spec.model, report=report, trial=spec.trial)
    finally:
        client.close()
    if problem := readable_problem(found.model):
        raise ModelError(f"model {name}: the name of the model on the server, {quoted(found.model)}, {problem}.")
    reported = {key: displayable(text) if isinstance(text, str) else text for key, text in found.reported.items()}
    found = replace(found, known=answers, reported=reported)
    record |= {"server": found, "subject": [found.model, record.revision, files and files.fingerprint]}
    record |= {"parameters": reported.get("parameters")}
    return _identified(record, known), client.usage


def _identified(record: ModelRecord, known: ModelRecord | None) -> ModelRecord:
    """Return the record of a probe with its identity: that of an earlier record, if the server answers as it did."""
    found, subject = record.server, record.subject
    same = known and known.server and known.subject == subject and differences(known.server, found) is None
    if same:  # the first answers remain those to compare with: small differences do not add up
        found = replace(found, answers=(found if known.server.trial else known.server).answers)
    identity = known.identity if same else fingerprint(found.answers)
    return record | {"server": found, "identity": identity, "fingerprint": fingerprint([*subject, identity])}
