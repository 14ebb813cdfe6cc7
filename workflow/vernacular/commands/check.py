"""Command `check`: validate a config file, list its evaluations, and say which of them a server can answer."""

import tempfile
from pathlib import Path

from vernacular.config.dependencies import server_spec
from vernacular.config.load import Config, load
from vernacular.core.errors import ArtifactError, ModelError, format_count
from vernacular.core.records import read_record
from vernacular.inference.job.work import not_answerable
from vernacular.protocols.build import inference_metadata


def check(args) -> str:
    """Print the evaluations of a config file, and the protocols of each model behind a server.

    A server that has no record yet is probed; nothing is written. Raises ConfigError if the file is invalid.
    """
    config = load(args.config)
    for evaluation in config.evaluations:
        print(f"  {evaluation}")
    for name in config.servers:
        print("\n".join(_server_lines(config, name)), flush=True)
    models, evaluations = format_count(len(config.models), "model"), format_count(len(config.evaluations), "evaluation")
    return f"check: {models}, {evaluations} per model"


def _server_lines(config: Config, name: str) -> list[str]:
    """Return which protocols of the config a server can answer, and for the others the reason."""
    heading = f"  {name} ({config.models[name]['source']})"
    try:
        server = _record(config, name)["server"]
    except ModelError as error:
        return [f"{heading}: unknown protocols: {error}"]
    protocols = dict.fromkeys(evaluation.protocol for evaluation in config.evaluations.values())
    reasons = {p: not_answerable(server, {"protocol": p, **inference_metadata(p)}) for p in protocols}
    possible = [protocol for protocol, reason in reasons.items() if reason is None]
    return [
        f"{heading}: {', '.join(possible) or 'no protocol'}",
        *(f"    {reason}" for reason in reasons.values() if reason),
    ]


def _record(config: Config, name: str) -> dict:
    """Return the record of a model behind a server; without one, the server is probed now."""
    from vernacular.commands.server import probe_server

    try:
        record = read_record(Path("resources", "models", f"{name}.json"))
    except ArtifactError:
        record = {}
    if "server" in record and record["source"] == config.models[name]["source"]:
        return record
    with tempfile.TemporaryDirectory() as directory:
        return probe_server(server_spec(config, name), Path(directory), None)[0]
