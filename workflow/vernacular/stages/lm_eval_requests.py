"""Command `lm-eval-requests`: tasks of lm-eval -> items and requests. Runs in lm-eval's environment."""

import contextlib
from dataclasses import replace
from pathlib import Path

from vernacular.config.specs import LmEvalSpec, UnitSpec
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, DataError, format_count
from vernacular.core.fields import Stage
from vernacular.core.fingerprint import fingerprint
from vernacular.core.metadata import ItemsMetadata, Outcome, RequestsMetadata, RowCounts, Source
from vernacular.data.schema import ITEMS
from vernacular.lm_eval.instances import build, chat_arguments
from vernacular.lm_eval.loading import LoadedUnit, load_unit
from vernacular.lm_eval.sandbox import template_environment
from vernacular.protocols.request_rows import warnings_of
from vernacular.protocols.schema import REQUESTS, request_size
from vernacular.stages.common import Batch
from vernacular.types import DEFAULT_PROMPT, SETTING


class LmEvalRequests(Stage):
    """Write the prompts of lm-eval tasks, in the environment of lm-eval."""

    spec: LmEvalSpec  # of the rule: what the results depend on
    items_dir: Path  # directory of the items files
    out: Path  # directory of the requests files


def lm_eval_requests(args: LmEvalRequests) -> str:
    """Write the documents and prompts of each evaluation; an unavailable task gets files that state the reason."""
    return _UnitFiles(args).run("lm-eval-requests")


class _UnitFiles(Batch):
    kind = REQUESTS

    def metadata(self, spec: UnitSpec) -> RequestsMetadata:
        return RequestsMetadata(
            **{name: getattr(spec, name) for name in ("evaluation", *SETTING) if name != "prompt"},
            prompt=None if spec.prompt == DEFAULT_PROMPT else spec.prompt,
            items=_no_items(spec),
            request_kind="generate" if spec.generates else "score",
            causal_only=True,
            chat_only=spec.style == "chat",
            has_turns=spec.style == "chat",
            options=spec.options,
            fingerprint=artifacts.input_fingerprint(self.inputs(spec)),
        )

    def is_current(self, metadata: RequestsMetadata, spec: UnitSpec) -> bool:
        path = self.items(spec)
        if not super().is_current(metadata, spec):
            return False
        if artifacts.metadata(path, ITEMS).fingerprint != metadata.items.fingerprint:
            return False
        path.touch()
        return True

    def make(self, path: Path, spec: UnitSpec) -> str:
        if spec.reason:
            raise DataError(f"it cannot be run: {spec.reason}")
        with template_environment(trusted=spec.trusted):
            unit = load_unit(spec)
            options = {"generates": spec.generates, "gen_kwargs": spec.options.get("gen_kwargs")}
            items, rows = build(unit, limit=spec.limit, seed=spec.seed, chat=chat_arguments(spec), **options)
        source = _items_metadata(unit, items, spec)
        artifacts.write(self.items(spec), ITEMS, items, source)
        warnings, is_whole = warnings_of(items, rows), all("rolling" in (row["extras"] or ()) for row in rows)
        self.write(path, spec, rows, items=source, warnings=warnings, whole_texts=is_whole, **request_size(rows))
        return "; ".join([format_count(len(rows), "request"), *warnings])

    def failure(self, spec: UnitSpec, reason: str) -> Outcome:
        outcome, has_items = super().failure(spec, reason), False
        with contextlib.suppress(ArtifactError):  # an evaluation with another number of shots may have written them
            has_items = artifacts.metadata(self.items(spec), ITEMS).outcome.is_complete
        if not has_items:
            artifacts.write(self.items(spec), ITEMS, [], replace(_no_items(spec), outcome=outcome))
        return outcome


def _no_items(spec: UnitSpec) -> ItemsMetadata:
    """Return the metadata of items that could not be read."""
    return ItemsMetadata(task=spec.task, fingerprint=artifacts.input_fingerprint(spec.items_stem))


def _items_metadata(unit: LoadedUnit, items: list[dict], spec: UnitSpec) -> ItemsMetadata:
    """Return the metadata of the documents of a unit."""
    configs = [task.config for task in unit.tasks.values()]
    datasets = dict.fromkeys((str(c.dataset_path), c.dataset_name and str(c.dataset_name)) for c in configs)
    names = ", ".join(dict.fromkeys(path for path, _ in datasets))
    digest = fingerprint([[item["item_id"], item["extra"]["document"]] for item in items])
    return ItemsMetadata(
        task=spec.task,
        language=spec.language,
        source=Source(
            kind="lm_eval",
            sha256=digest,
            repository=names if len(names) < 200 else f"{len(datasets)} datasets",
            config=next(iter(datasets))[1] if len(datasets) == 1 else None,
            release=f"{spec.versions['lm_eval']}+{spec.package[:8]}",
            tasks={name: str(getattr(task, "VERSION", None)) for name, task in unit.tasks.items()},
        ),
        rows=RowCounts(read=len(items), kept=len(items), evaluated=len(items)),
        few_shot_examples=RowCounts(read=0, kept=0),
        limit=spec.limit,
        fingerprint=artifacts.input_fingerprint(digest, spec.items_stem),
    )
