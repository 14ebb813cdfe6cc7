"""Command `requests`: items -> requests of every evaluation."""

from pathlib import Path

from vernacular.commands.common import Batch, items_in
from vernacular.config.specs import PromptSpec, RequestsSpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage, to_json
from vernacular.protocols.build import build_evaluation, inference_metadata
from vernacular.protocols.schema import REQUESTS, request_size


class Requests(Stage):
    """Write the prompts of evaluations."""

    spec: RequestsSpec  # of the rule: what the results depend on
    items_dir: Path  # directory of the items files
    out: Path  # directory of the requests files


def requests(args: Requests) -> str:
    """Write the prompts of each evaluation to `args.out/{evaluation}.parquet`, none if the dataset is unavailable."""
    return _Evaluations(args).run("requests")


def give_up(args: Requests, reason: str) -> str:
    """Write requests files without rows that state why the remaining evaluations have none."""
    return "\n".join(_Evaluations(args).fail_rest(reason))


class _Evaluations(Batch):
    key = "evaluations"
    noun, done_label, failed_label = "evaluation", "built", "failed"

    def is_current(self, metadata: dict, spec: PromptSpec) -> bool:
        return metadata["fingerprint"] == self._fingerprint(spec, artifacts.metadata(self._items(spec)))

    def make(self, path: Path, spec: PromptSpec) -> str:
        source = artifacts.metadata(self._items(spec))
        if unavailable := source.get("unavailable"):
            self.fail(path, spec, unavailable)
            return f"requests: {path.stem}: no requests (dataset unavailable)"
        rows, prompt_metadata = build_evaluation(items_in(self._items(spec)), spec)
        metadata = {**self._metadata(spec, source), **prompt_metadata, "size": request_size(rows)}
        artifacts.write(path, REQUESTS, rows, metadata)
        return f"requests: {path.stem}: {format_count(len(rows), 'request')}"

    def fail(self, path: Path, spec: PromptSpec, reason: str) -> str:
        metadata = self._metadata(spec, artifacts.metadata(self._items(spec)))
        artifacts.write(path, REQUESTS, [], {**metadata, "unavailable": reason})
        return f"requests: {path.stem}: unavailable ({reason})"

    def _items(self, spec: PromptSpec) -> Path:
        return self.args.items_dir / f"{spec.items}.parquet"

    def _metadata(self, spec: PromptSpec, source: dict) -> dict:
        keys = (
            "evaluation",
            "language",
            "protocol",
            "shots",
            "seed",
            "style",
            "prompt",
        )  # the default is not named
        metadata = {key: value for key, value in to_json(spec).items() if key in keys}
        metadata |= {"task": spec.task["task"], "items": source} | inference_metadata(spec.protocol)
        return metadata | {"fingerprint": self._fingerprint(spec, source)}

    def _fingerprint(self, spec: PromptSpec, source: dict) -> str:
        return artifacts.input_fingerprint(self.inputs(spec), source["fingerprint"])
