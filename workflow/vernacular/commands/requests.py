"""Command `requests`: items -> requests of every evaluation."""

from pathlib import Path

from vernacular.commands.batch import Batch
from vernacular.commands.batch import record_death as record_death  # called by cli.py
from vernacular.commands.common import items_in
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.protocols.build import build_evaluation, inference_metadata
from vernacular.protocols.schema import REQUESTS, request_size


def requests(args) -> str:
    """Write the prompts of each evaluation to `args.out/{evaluation}.parquet`, none if the dataset is unavailable."""
    return _Evaluations(args).run("requests")


def give_up(args, reason: str) -> str:
    """Write requests files without rows that state why the remaining evaluations have none."""
    return "\n".join(_Evaluations(args).fail_rest(reason))


class _Evaluations(Batch):
    key = "evaluations"
    noun, done_label, failed_label = "evaluation", "built", "failed"

    def is_current(self, metadata: dict, spec: dict) -> bool:
        return metadata["fingerprint"] == _fingerprint(spec, artifacts.metadata(self._items(spec)))

    def make(self, path: Path, spec: dict) -> str:
        source = artifacts.metadata(self._items(spec))
        if unavailable := source.get("unavailable"):
            self.fail(path, spec, unavailable)
            return f"requests: {path.stem}: no requests (dataset unavailable)"
        rows, prompt_metadata = build_evaluation(items_in(self._items(spec)), spec)
        metadata = {**_metadata(spec, source), **prompt_metadata, "size": request_size(rows)}
        artifacts.write(path, REQUESTS, rows, metadata)
        return f"requests: {path.stem}: {format_count(len(rows), 'request')}"

    def fail(self, path: Path, spec: dict, reason: str) -> str:
        metadata = _metadata(spec, artifacts.metadata(self._items(spec)))
        artifacts.write(path, REQUESTS, [], {**metadata, "unavailable": reason})
        return f"requests: {path.stem}: unavailable ({reason})"

    def _items(self, spec: dict) -> Path:
        return self.args.items_dir / f"{spec['items']}.parquet"


def _metadata(spec: dict, source: dict) -> dict:
    keys = ("evaluation", "language", "protocol", "shots", "seed", "style", "prompt")  # the default has no name here
    metadata = {key: spec[key] for key in keys if key in spec}
    metadata |= {"task": spec["task"]["task"], "items": source} | inference_metadata(spec["protocol"])
    return metadata | {"fingerprint": _fingerprint(spec, source)}


def _fingerprint(spec: dict, source: dict) -> str:
    return artifacts.input_fingerprint(spec, source["fingerprint"])
