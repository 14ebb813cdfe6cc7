"""Command `requests`: items -> requests of every evaluation."""

from pathlib import Path

from vernacular.config.specs import PromptSpec, RequestsSpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage, to_json
from vernacular.core.metadata import RequestsMetadata
from vernacular.data.schema import ITEMS
from vernacular.protocols.build import build_evaluation, inference_metadata
from vernacular.protocols.schema import REQUESTS, request_size
from vernacular.stages.common import Batch, items_in


class Requests(Stage):
    """Write the prompts of evaluations."""

    spec: RequestsSpec  # of the rule: what the results depend on
    items_dir: Path  # directory of the items files
    out: Path  # directory of the requests files


def requests(args: Requests) -> str:
    """Write the prompts of each evaluation to `args.out/{evaluation}.parquet`, none if the dataset is unavailable."""
    return _RequestFiles(args).run("requests")


class _RequestFiles(Batch):
    kind = REQUESTS

    def metadata(self, spec: PromptSpec) -> RequestsMetadata:
        source = artifacts.metadata(self.items(spec), ITEMS)
        names = ("evaluation", "language", "protocol", "shots", "seed", "style", "prompt")
        return RequestsMetadata(
            **{name: value for name, value in to_json(spec).items() if name in names},  # the default prompt has no name
            **inference_metadata(spec.protocol),
            task=spec.task["task"],
            items=source,
            fingerprint=artifacts.input_fingerprint(self.inputs(spec), source.fingerprint),
        )

    def make(self, path: Path, spec: PromptSpec) -> str:
        outcome = artifacts.metadata(self.items(spec), ITEMS).outcome
        if not outcome.is_complete:
            self.write(path, spec, [], outcome=outcome)
            return "no requests (dataset unavailable)"
        rows, prompt_metadata = build_evaluation(items_in(self.items(spec)), spec)
        self.write(path, spec, rows, **prompt_metadata, **request_size(rows))
        return "; ".join([format_count(len(rows), "request"), *prompt_metadata["warnings"]])
