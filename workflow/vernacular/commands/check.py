"""Command `check`: validate a config, what it refers to, and list its evaluations and what its servers can answer."""

import tempfile
from pathlib import Path

from vernacular.config.dependencies import server_spec
from vernacular.config.directories import output_conflicts
from vernacular.config.load import Config, load_valid
from vernacular.config.references import References, check_references
from vernacular.core.errors import ArtifactError, ModelError, format_count
from vernacular.core.metadata import RequestsMetadata
from vernacular.core.model_record import ModelRecord, read_model
from vernacular.inference.job.work import not_answerable
from vernacular.protocols.build import inference_metadata


def check(args) -> str:
    """Print the evaluations of a config with their numbers of items, what its servers can answer, and what is wrong.

    Raises:
        ConfigError: All mistakes, each in one or two lines.
    """
    config, problems = load_valid(args.config)
    is_valid = not problems
    for conflict in output_conflicts(Path(config.output), config.exports, args.config):
        problems.add(conflict)
    references = check_references(config, problems, online=args.online)
    if not is_valid:  # what would be evaluated is not known
        problems.raise_all()
    for evaluation in config.evaluations:
        n_items = references.items.get(evaluation)
        print(f"  {evaluation}" + (f": {format_count(n_items, 'item')}" if n_items is not None else ""))
    for name in config.servers:
        if server := _server(config, name, references, online=args.online):
            print("\n".join(_protocol_lines(config, name, server)), flush=True)
    for note in references.notes:
        print(f"Note: {note}")
    if references.unchecked:
        names, asked = (
            ", ".join(dict.fromkeys(references.unchecked)),
            "the Hub and servers" if config.servers else "the Hub",
        )
        print(f"Not checked, because not on this disk: {names}" + ("" if args.online else f" (--online asks {asked})"))
    references.problems.raise_all()
    models, evaluations = format_count(len(config.models), "model"), format_count(len(config.evaluations), "evaluation")
    return f"check: {models}, {evaluations} per model"


def _server(config: Config, name: str, references: References, *, online: bool) -> ModelRecord | None:
    """Return what the probe of a server found: now, if `online`, else in an earlier run; None if it is not known.

    Nothing is written.
    """
    source = config.models[name]["source"]
    if not online:
        try:
            record = read_model(Path("resources", "models", f"{name}.json"))
        except ArtifactError:
            record = None
        if record and record.server and record.source == source:
            return record
        references.unchecked.append(source)
        return None
    from vernacular.commands.server import probe_server

    print(f"asking {source}", flush=True)
    try:
        with tempfile.TemporaryDirectory() as directory:
            return probe_server(server_spec(config, name), Path(directory), None)[0]
    except ModelError as error:
        references.problems.add(f"model {name}: {str(error).removeprefix(f'model {name}: ')}")
        return None


def _protocol_lines(config: Config, name: str, record: ModelRecord) -> list[str]:
    """Return which protocols of the config a server can answer, and for the others the reason."""
    protocols = dict.fromkeys(evaluation.protocol for evaluation in config.evaluations.values())
    reasons = {
        name: not_answerable(record, RequestsMetadata(protocol=name, **inference_metadata(name))) for name in protocols
    }
    possible = [protocol for protocol, reason in reasons.items() if reason is None]
    return [
        f"  {name} ({config.models[name]['source']}): {', '.join(possible) or 'no protocol'}",
        *(f"    {reason}" for reason in reasons.values() if reason),
    ]
