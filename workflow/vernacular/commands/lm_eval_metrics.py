"""Command `lm-eval-metrics`: outputs of one model -> lm-eval's metrics, per item and aggregated, in its environment."""

from pathlib import Path

from vernacular.commands.batch import Batch
from vernacular.commands.batch import record_death as record_death  # called by cli.py
from vernacular.commands.common import items_in, missing_reason
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.lm_eval.evaluation import evaluate
from vernacular.lm_eval.loading import load_unit
from vernacular.lm_eval.sandbox import template_environment
from vernacular.lm_eval.values import task_results
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.protocols.schema import REQUESTS


def lm_eval_metrics(args) -> str:
    """Write the results of each evaluation to `args.out`; one without outputs gets a file that states why."""
    return _Evaluations(args).run(f"lm-eval-metrics: {args.spec['model']}")


def give_up(args, reason: str) -> str:
    """Write files without rows that state why the remaining evaluations have no metrics."""
    return "\n".join(_Evaluations(args).fail_rest(reason))


class _Evaluations(Batch):
    key = "evaluations"
    noun, done_label, failed_label = "evaluation", "evaluated", "failed"

    def is_current(self, metadata: dict, spec: dict) -> bool:
        return metadata["fingerprint"] == self._fingerprint(spec)

    def make(self, path: Path, spec: dict) -> str:
        if missing := missing_reason(artifacts.metadata(self._outputs(spec))):
            artifacts.write(path, TASK_RESULTS, [], missing | {"fingerprint": self._fingerprint(spec)})
            return f"lm-eval-metrics: {path.stem}: no outputs"
        requests = artifacts.read(self._requests(spec), REQUESTS).to_pylist()
        outputs = artifacts.read(self._outputs(spec), _kind(spec)).to_pylist()
        items = items_in(self.args.items_dir / f"{spec['items']}.parquet")
        with template_environment(trusted=spec["trusted"]):
            unit = load_unit(spec)
            results = evaluate(unit, requests, outputs, limit=spec["limit"], trusted=spec["trusted"])
            rows, definitions, values = task_results(unit, items, requests, outputs, results)
        metadata = {"definitions": definitions, "values": values, "fingerprint": self._fingerprint(spec)}
        artifacts.write(path, TASK_RESULTS, rows, metadata)
        return f"lm-eval-metrics: {path.stem}: {format_count(len(values), 'value')}"

    def fail(self, path: Path, spec: dict, reason: str) -> str:
        reason = f"metrics not computed ({reason})"
        artifacts.write(path, TASK_RESULTS, [], {"unavailable": reason, "fingerprint": self._fingerprint(spec)})
        return f"lm-eval-metrics: {path.stem}: {reason}"

    def _fingerprint(self, spec: dict) -> str:
        return artifacts.input_fingerprint(spec, self._requests(spec), self._outputs(spec))

    def _outputs(self, spec: dict) -> Path:
        return self.args.results / _kind(spec).name / f"{spec['evaluation']}.parquet"

    def _requests(self, spec: dict) -> Path:
        return self.args.requests_dir / f"{spec['evaluation']}.parquet"


def _kind(spec: dict):
    return GENERATIONS if spec["generates"] else SCORES
