"""Command `lm-eval-metrics`: outputs of one model -> lm-eval's metrics, per item and aggregated, in its environment."""

from pathlib import Path

from vernacular.config.specs import LmEvalSpec, UnitSpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage
from vernacular.core.metadata import Outcome, ToolResultsMetadata, unavailable
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.lm_eval import instances
from vernacular.lm_eval.evaluation import UnitMetrics, evaluate
from vernacular.lm_eval.loading import LoadedUnit, load_unit
from vernacular.lm_eval.sandbox import template_environment
from vernacular.metrics.schema import TOOL_RESULTS
from vernacular.metrics.spans import best_indices, by_item, flags
from vernacular.protocols.schema import REQUESTS
from vernacular.stages.common import Batch, items_in
from vernacular.types import Item, Result


class LmEvalMetrics(Stage):
    """Compute the metrics of lm-eval tasks, in the environment of lm-eval."""

    spec: LmEvalSpec  # of the rule: what the results depend on
    items_dir: Path  # directory of the items files
    requests_dir: Path  # directory of the requests files
    results: Path  # directory of the model's results
    out: Path  # directory of lm-eval's results


def lm_eval_metrics(args: LmEvalMetrics) -> str:
    """Write the results of each evaluation to `args.out`; one without outputs gets a file that states why."""
    return _UnitResults(args).run(f"lm-eval-metrics: {args.spec.model}")


class _UnitResults(Batch):
    done_label = "evaluated"
    kind = TOOL_RESULTS

    def metadata(self, spec: UnitSpec) -> ToolResultsMetadata:
        inputs = self.inputs(spec), self.requests(spec), self._outputs(spec)
        return ToolResultsMetadata(fingerprint=artifacts.input_fingerprint(*inputs))

    def make(self, path: Path, spec: UnitSpec) -> str:
        outcome = artifacts.metadata(self._outputs(spec), _kind(spec)).outcome
        if not outcome.is_complete:
            self.write(path, spec, [], outcome=outcome)
            return "no outputs"
        requests = artifacts.read(self.requests(spec), REQUESTS).to_pylist()
        outputs = artifacts.read(self._outputs(spec), _kind(spec)).to_pylist()
        items = items_in(self.items(spec))
        with template_environment(trusted=spec.trusted):
            unit = load_unit(spec)
            chat = instances.chat_arguments(spec)
            results = evaluate(unit, requests, outputs, limit=spec.limit, trusted=spec.trusted, chat=chat)
            rows, definitions, values = task_results(unit, items, requests, outputs, results)
        self.write(path, spec, rows, definitions=definitions, values=values)
        return format_count(len(values), "value")

    def failure(self, spec: UnitSpec, reason: str) -> Outcome:
        return unavailable(f"metrics not computed ({reason})")

    def _outputs(self, spec: UnitSpec) -> Path:
        return self.args.results / _kind(spec).name / f"{spec.evaluation}.parquet"


def _kind(spec: UnitSpec):
    return GENERATIONS if spec.generates else SCORES


def task_results(
    unit: LoadedUnit, items: list[Item], requests: list[dict], outputs: list[dict], results: dict
) -> tuple[list[Result], list[dict], list[dict]]:
    """Return (rows per TASK_RESULTS, definitions of metrics, values: rows per METRICS without labels)."""
    unit_metrics = UnitMetrics(unit, results)
    spans = {} if _generates(requests) else by_item(requests, outputs)
    generated = {row["item_id"]: row for row in reversed(outputs)} if _generates(requests) else {}
    filtered = _predictions(unit, results)
    decided = (0.0, 1.0) if unit_metrics.headline and unit_metrics.is_share(unit_metrics.headline) else ()
    rows = []
    for item in items:
        values = unit_metrics.per_item.get(item["item_id"], {})
        scored = spans.get(item["item_id"], {})
        scores = [span.loglik for role, span in scored.items() if role.startswith("choice:")][: len(item["choices"])]
        scores = None if not scores or any(score is None for score in scores) else scores
        predicted = best_indices(scores) if item["choices"] else []
        output = generated.get(item["item_id"])
        prediction = filtered.get(item["item_id"]) if output else None
        headline = values.get(unit_metrics.headline)
        rows.append(
            {
                "item_id": item["item_id"],
                "cluster_id": None,
                "category": item["category"],
                "prompt": item["context"],
                "choices": item["choices"],
                "gold": item["gold"],
                "option_scores": scores if item["choices"] else None,
                "prediction": " | ".join(item["choices"][i] for i in predicted) if predicted else prediction,
                "predicted_indices": predicted or None,
                "correct": bool(headline) if headline in decided else None,
                "tie": len(predicted) > 1 if predicted else None,
                "metrics": values,
                "flags": output["flags"] if output else flags(scored),
            }
        )
    definitions = unit_metrics.definitions("similarity" if _generates(requests) else "surprisal")
    return rows, definitions, unit_metrics.values(rows, definitions)


def _generates(requests: list[dict]) -> bool:
    return bool(requests) and requests[0]["kind"] == "generate"


def _predictions(unit: LoadedUnit, results: dict) -> dict[str, str]:
    """Return the output of each item after the first filter, as text."""
    found: dict[str, str] = {}
    for name in unit.tasks:
        for sample in results["samples"][name]:
            outputs = sample["filtered_resps"]
            text = outputs[0] if len(outputs) == 1 else outputs
            item = instances.item_id(name if unit.is_group else None, sample["doc_id"])
            found.setdefault(item, text if isinstance(text, str) else str(text))
    return found
