"""Command `requests`: items -> requests of every evaluation."""

from pathlib import Path

from vernacular.commands.batch import Batch
from vernacular.commands.batch import died as died  # called by cli.py
from vernacular.commands.common import items_in
from vernacular.core import artifacts
from vernacular.core.errors import counted
from vernacular.protocols.build import build, evaluated_by
from vernacular.protocols.schema import REQUESTS, request_size


def requests(args) -> str:
    """Write the prompts of each evaluation to `args.out/{evaluation}.parquet`, none if the dataset is unavailable."""
    return f"requests: {_Evaluations(args, 'evaluations').run()}"


def give_up(args, reason: str) -> str:
    """Write requests files without rows that state why the remaining evaluations have none."""
    return _Evaluations(args, "evaluations").fail_rest(reason)


class _Evaluations(Batch):
    noun, made, failed = "evaluation", "built", "failed"

    def is_current(self, metadata: dict, spec: dict) -> bool:
        return metadata["fingerprint"] == _fingerprint(spec, artifacts.metadata(self._items(spec)))

    def make(self, path: Path, spec: dict) -> str:
        source = artifacts.metadata(self._items(spec))
        if unavailable := source.get("unavailable"):
            self.fail(path, spec, unavailable)
            return f"requests: {path.stem}: no requests (dataset unavailable)"
        given = ("language", "protocol", "shots", "seed", "style", "options")
        rows, built = build(items_in(self._items(spec)), spec["task"], **{key: spec[key] for key in given})
        artifacts.write(path, REQUESTS, rows, {**_about(spec, source), **built, "size": request_size(rows)})
        return f"requests: {path.stem}: {counted(len(rows), 'request')}"

    def fail(self, path: Path, spec: dict, reason: str) -> str:
        about = _about(spec, artifacts.metadata(self._items(spec)))
        artifacts.write(path, REQUESTS, [], {**about, "unavailable": reason})
        return f"requests: {path.stem}: unavailable ({reason})"

    def _items(self, spec: dict) -> Path:
        return self.args.items_dir / f"{spec['items']}.parquet"


def _about(spec: dict, source: dict) -> dict:
    about = {key: spec[key] for key in ("evaluation", "language", "protocol", "shots", "seed", "style")}
    about |= {"task": spec["task"]["task"], "items": source} | evaluated_by(spec["protocol"])
    return about | {"fingerprint": _fingerprint(spec, source)}


def _fingerprint(spec: dict, source: dict) -> str:
    return artifacts.made_of(spec, source["fingerprint"])
