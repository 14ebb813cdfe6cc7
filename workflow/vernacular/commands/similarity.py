"""Command `similarity`: similarity of generated responses to every option, for one model."""

from pathlib import Path

from vernacular.commands.batch import Batch
from vernacular.commands.batch import record_death as record_death  # called by cli.py
from vernacular.commands.common import check_inputs, check_recorded, items_in, missing_reason
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.model_record import read_model
from vernacular.inference.schema import GENERATIONS
from vernacular.metrics.schema import SIMILARITIES
from vernacular.metrics.similarity import simil_eval
from vernacular.protocols.schema import REQUESTS
from vernacular.types import SIMIL_EVAL_STYLES


def similarity(args) -> str:
    """Compute the similarity of each response to every option, for the evaluations of one model that lack it."""
    evaluations = _Evaluations(args)
    return evaluations.run(f"similarity: {evaluations.model.name}")


def give_up(args, reason: str) -> str:
    """Write, for evaluations that this job did not finish, files with the reason why all metrics are missing."""
    evaluations = _Evaluations(args)
    count = format_count(len(evaluations.fail_rest(reason)), "evaluation")
    return f"similarity: {evaluations.model.name}: {count} without similarity ({reason})"


class _Evaluations(Batch):
    """The evaluations of one model."""

    key = "evaluations"
    noun, done_label, failed_label = "evaluation", "computed", "failed"
    prints_files = False

    def __init__(self, args):
        super().__init__(args)
        records = {path: read_model(path) for path in [*args.encoders, args.model]}
        for path, record in records.items():
            check_recorded(path, record)
        self.model = records[args.model]
        self.encoder_records = {path.stem: records[path] for path in args.encoders}
        self.generations = {path.stem: path for path in args.generations}
        # sorted by items: evaluations of the same items share their options, whose vectors are cached
        by_items = sorted(self.specs.items(), key=lambda entry: entry[1]["items"])
        self.specs = {name: {"evaluation": name, **spec} for name, spec in by_items}

    def is_current(self, metadata: dict, spec: dict) -> bool:
        return metadata["fingerprint"] == self._fingerprint(spec) and not metadata.get("missing_metrics")

    def make(self, path: Path, spec: dict) -> str:
        generations = self._generations(spec)
        output_metadata = artifacts.metadata(generations)
        if missing := missing_reason(output_metadata):
            self._write(path, spec, [], missing)
            return f"similarity: {path.stem}: no outputs"
        from vernacular.metrics.similarity.compute import similarities  # torch, which a masked model needs not

        items, requests = self._items(spec), self._requests(spec)
        check_inputs(items, requests, generations, output_metadata, self.model)
        rows, metadata = similarities(
            items_in(items),
            artifacts.read(generations, GENERATIONS).to_pylist(),
            spec["metrics"],
            self._encoders(spec),
            requests=artifacts.read(requests, REQUESTS).to_pylist(),
            style=spec["style"],
            language=spec["language"],
            threads=self.args.threads,
        )
        self._write(path, spec, rows, metadata | {"generations": output_metadata["fingerprint"]})
        return f"similarity: {path.stem}: {format_count(len(rows), 'row')}"

    def fail(self, path: Path, spec: dict, reason: str) -> str:
        output_metadata = artifacts.metadata(self._generations(spec))
        missing_metrics = {metric["metric"]: reason for metric in spec["metrics"]}
        metadata = {"signatures": {}, "encoders": {}, "missing_metrics": missing_metrics}
        metadata["generations"] = output_metadata.get("fingerprint")
        self._write(path, spec, [], missing_reason(output_metadata) or metadata)
        return f"similarity: {self.model.name}: {path.stem}: {reason}"

    def _write(self, path: Path, spec: dict, rows: list[dict], metadata: dict) -> None:
        metadata = {"evaluation": path.stem, **metadata, "fingerprint": self._fingerprint(spec)}
        artifacts.write(path, SIMILARITIES, rows, metadata)

    def _encoders(self, spec: dict) -> dict[str, dict]:
        """Return the record of each metric's encoder; Simil-Eval compares by the evaluated model itself."""
        encoders = {metric: self.encoder_records[name] for metric, name in spec["encoders"].items()}
        if spec["style"] in SIMIL_EVAL_STYLES:
            encoders |= dict.fromkeys(simil_eval.SELF_ENCODED, self.model)
        return encoders

    def _generations(self, spec: dict) -> Path:
        return self.generations[spec["evaluation"]]

    def _items(self, spec: dict) -> Path:
        return self.args.items_dir / f"{spec['items']}.parquet"

    def _requests(self, spec: dict) -> Path:
        return self.args.requests_dir / f"{spec['evaluation']}.parquet"

    def _fingerprint(self, spec: dict) -> str:
        """Return the fingerprint of all inputs; the options may change without the prompts, and so the responses."""
        encoders = [record.fingerprint for record in self._encoders(spec).values()]
        return artifacts.input_fingerprint(
            spec, encoders, self._items(spec), self._requests(spec), self._generations(spec)
        )
