"""Command `lm-eval-requests`: tasks of lm-eval -> items and requests. Runs in lm-eval's environment."""

from pathlib import Path

from vernacular.commands.common import Batch
from vernacular.config.specs import LmEvalSpec, UnitSpec
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, DataError, format_count
from vernacular.core.fields import Stage
from vernacular.core.fingerprint import fingerprint
from vernacular.data.schema import ITEMS
from vernacular.lm_eval.instances import build
from vernacular.lm_eval.loading import LoadedUnit, load_unit
from vernacular.lm_eval.sandbox import template_environment
from vernacular.protocols.schema import REQUESTS, request_size
from vernacular.types import DEFAULT_PROMPT

_SETTING = ("evaluation", "language", "protocol", "shots", "seed", "style", "task")


class LmEvalRequests(Stage):
    """Write the prompts of lm-eval tasks, in the environment of lm-eval."""

    spec: LmEvalSpec  # of the rule: what the results depend on
    items_dir: Path  # directory of the items files
    out: Path  # directory of the requests files


def lm_eval_requests(args: LmEvalRequests) -> str:
    """Write the documents and prompts of each evaluation; an unavailable task gets files that state the reason."""
    return _Evaluations(args).run("lm-eval-requests")


def give_up(args: LmEvalRequests, reason: str) -> str:
    """Write files without rows that state why the remaining evaluations have none."""
    return "\n".join(_Evaluations(args).fail_rest(reason))


class _Evaluations(Batch):
    key = "evaluations"
    noun, done_label, failed_label = "evaluation", "built", "failed"

    def is_current(self, metadata: dict, spec: UnitSpec) -> bool:
        if metadata["fingerprint"] != self._fingerprint(spec):
            return False
        path = self._items(spec)
        try:
            if artifacts.metadata(path)["fingerprint"] != metadata["items"]["fingerprint"]:
                return False
        except ArtifactError:
            return False
        path.touch()
        return True

    def make(self, path: Path, spec: UnitSpec) -> str:
        if spec.reason:
            raise DataError(f"it cannot be run: {spec.reason}")
        with template_environment(trusted=spec.trusted):
            unit = load_unit(spec)
            items, rows = build(unit, limit=spec.limit, seed=spec.seed, generates=spec.generates)
        source = _write_items(self._items(spec), unit, items, spec)
        metadata = self._metadata(spec, source) | {"size": request_size(rows)}
        artifacts.write(path, REQUESTS, rows, metadata)
        return f"lm-eval-requests: {path.stem}: {format_count(len(rows), 'request')}"

    def fail(self, path: Path, spec: UnitSpec, reason: str) -> str:
        items = self._items(spec)
        metadata = {"task": spec.task, "unavailable": reason}
        metadata |= {"fingerprint": artifacts.input_fingerprint(metadata)}
        if not _has_rows(items):  # otherwise, an evaluation with another number of shots shares them
            artifacts.write(items, ITEMS, [], metadata)
        artifacts.write(path, REQUESTS, [], {**self._metadata(spec, metadata), "unavailable": reason})
        return f"lm-eval-requests: {path.stem}: unavailable ({reason})"

    def _items(self, spec: UnitSpec) -> Path:
        return self.args.items_dir / f"{spec.items}.parquet"

    def _metadata(self, spec: UnitSpec, source: dict) -> dict:
        metadata = {key: getattr(spec, key) for key in _SETTING}
        metadata |= {"prompt": spec.prompt} if spec.prompt not in (None, DEFAULT_PROMPT) else {}
        metadata |= {"items": source, "options": {}, "causal_only": True, "few_shot_examples": [], "held_out": []}
        metadata |= {"request_kind": "generate" if spec.generates else "score", "fingerprint": self._fingerprint(spec)}
        return metadata | {"prefix": "", "prompts": None, "skipped": {}}

    def _fingerprint(self, spec: UnitSpec) -> str:
        return artifacts.input_fingerprint(self.inputs(spec))


def _has_rows(path: Path) -> bool:
    try:
        return "unavailable" not in artifacts.metadata(path)
    except ArtifactError:
        return False


def _write_items(path: Path, unit: LoadedUnit, items: list[dict], spec: UnitSpec) -> dict:
    """Write the documents of a unit and return their metadata; evaluations that differ in shots share the file."""
    configs = [task.config for task in unit.tasks.values()]
    datasets = dict.fromkeys((str(c.dataset_path), c.dataset_name and str(c.dataset_name)) for c in configs)
    names = ", ".join(dict.fromkeys(path for path, _ in datasets))
    digest = fingerprint([[item["item_id"], item["extra"]["document"]] for item in items])
    metadata = {
        "task": spec.task,
        "language": spec.language,
        "citation": None,
        "source": {
            "kind": "lm_eval",
            "repository": names if len(names) < 200 else f"{len(datasets)} datasets",
            "config": next(iter(datasets))[1] if len(datasets) == 1 else None,
            "split": None,
            "revision": None,
            "sha256": digest,
            "license": None,
            "lm_eval": spec.versions["lm_eval"],
            "tasks": {name: str(getattr(task, "VERSION", None)) for name, task in unit.tasks.items()},
        },
        "rows": {"read": len(items), "kept": len(items), "dropped": {}, "first_dropped": {}, "repaired": {},
                 "duplicates": 0, "evaluated": len(items)},
        "few_shot_examples": {"read": 0, "kept": 0, "dropped": {}, "repaired": {}, "duplicates": 0},
        "expected_rows": None,
        "limit": spec.limit,
        "seed": 0,
        "warnings": [],
        "fingerprint": artifacts.input_fingerprint(digest, spec.items),
    }  # fmt: skip
    artifacts.write(path, ITEMS, items, metadata)
    return metadata
