"""Stage `judge-requests`: generated texts of one model -> requests to a judge, a file per evaluation."""

from dataclasses import replace
from pathlib import Path

from vernacular.config.specs import JudgedSpec, JudgeRequestsSpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage
from vernacular.core.metadata import OutputsMetadata, RequestsMetadata, not_applicable
from vernacular.data.schema import ITEMS
from vernacular.inference.schema import GENERATIONS
from vernacular.metrics.similarity.outputs import parse_outputs
from vernacular.protocols.rubrics import requests_of
from vernacular.protocols.schema import REQUESTS, request_size
from vernacular.stages.common import Batch, items_in
from vernacular.types import correct_answers, skipped_reason


class JudgeRequests(Stage):
    """Write what a judge is asked about the generated texts of one model."""

    spec: JudgeRequestsSpec  # of the rule: what the results depend on
    items_dir: Path  # directory of the items files
    requests_dir: Path  # directory of the requests files of the judged model
    results: Path  # directory with a directory per model
    out: Path  # directory of the requests files


def judge_requests(args: JudgeRequests) -> str:
    """Write the requests about each evaluation of a model; an evaluation without texts gets a file that states why."""
    return _RequestFiles(args).run(f"judge-requests: {args.spec.judge}: {args.spec.model}")


class _RequestFiles(Batch):
    kind = REQUESTS
    prints_files = False

    def __init__(self, args):
        super().__init__(args)
        self.models = [args.spec.model, *([args.spec.baseline] if args.spec.baseline else [])]

    def metadata(self, spec: JudgedSpec) -> RequestsMetadata:
        """Return the fingerprint of all inputs, the judged texts among them."""
        items, outputs = artifacts.metadata(self.items(spec), ITEMS), self._outputs(spec)
        prints = [output.fingerprint for output in outputs.values()]
        inputs = self.inputs(spec), items.fingerprint, self.requests(spec), prints
        in_text = spec.rubric.reads == "text"
        return RequestsMetadata(
            protocol=f"judge {self.args.spec.judge}",
            request_kind="generate" if in_text else "score",
            causal_only=True,
            chat_only=in_text,
            label_spans=not in_text and not spec.rubric.pattern,
            has_turns=True,
            evaluation=spec.evaluation,
            task=spec.task,
            language=spec.language,
            items=items,
            options={"outputs": prints[0]},
            fingerprint=artifacts.input_fingerprint(*inputs),
        )

    def make(self, path: Path, spec: JudgedSpec) -> str:
        outputs = self._outputs(spec)
        for model, metadata in outputs.items():
            if not (outcome := metadata.outcome).is_complete:
                reason = f"no texts of {model}: {outcome.reason}"
                self.write(path, spec, [], outcome=replace(outcome, reason=reason))
                return "no outputs"
        own_requests = artifacts.read(self.requests(spec), REQUESTS).to_pylist()
        about = artifacts.metadata(self.requests(spec), REQUESTS)
        texts = []
        for model, metadata in outputs.items():
            generations = self._path(model, spec)
            artifacts.check_input_fingerprint(generations, metadata.requests, about.fingerprint, "requests")
            texts.append(parse_outputs(own_requests, artifacts.read(generations, GENERATIONS).to_pylist()))
        items = {item["item_id"]: item for item in items_in(self.items(spec))}
        rows, skipped = [], {}
        for request in {row["item_id"]: row for row in reversed(own_requests)}.values():
            if skipped_reason(request["role"]) is not None:
                continue
            name = request["item_id"]
            shown = [found[name].text if name in found else None for found in texts]
            references = correct_answers(items[name])
            if None in shown:
                skipped[name] = "the model generated no text"
            elif "{reference}" in spec.rubric.template and not references:
                skipped[name] = "the rubric has a reference, and the item has none"
            else:
                fields = (request["text"], tuple(shown), " / ".join(references))
                rows += requests_of(items[name], spec.rubric, spec.language, *fields)
        if not rows:
            reason = next(iter(skipped.values()), "there are no texts")
            self.write(path, spec, [], outcome=not_applicable(f"nothing to judge: {reason}"), skipped=skipped)
            return "nothing to judge"
        n_samples = about.options.get("repeats", 1)
        warnings = [f"of {n_samples} texts of an item, the first is judged"] if n_samples > 1 else []
        self.write(path, spec, rows, skipped=skipped, warnings=warnings, **request_size(rows))
        return format_count(len(rows), "request")

    def _outputs(self, spec: JudgedSpec) -> dict[str, OutputsMetadata]:
        return {model: artifacts.metadata(self._path(model, spec), GENERATIONS) for model in self.models}

    def _path(self, model: str, spec: JudgedSpec) -> Path:
        return self.args.results / model / "generations" / f"{spec.evaluation}.parquet"
