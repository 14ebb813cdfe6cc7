"""Command `similarity`: similarity of generated responses to every option, for one model.

The similarities of the same outputs to the same items, in whichever run, are in the store: where all are found,
no encoder is loaded.
"""

import logging
from pathlib import Path

from vernacular.config.specs import SimilaritySettings, SimilaritySpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage
from vernacular.core.fingerprint import fingerprint
from vernacular.core.metadata import Outcome, SimilaritiesMetadata
from vernacular.core.model_record import ModelRecord
from vernacular.inference.job.store import Store, StoreError
from vernacular.inference.schema import GENERATIONS
from vernacular.metrics.schema import SIMILARITIES
from vernacular.metrics.similarity import outputs
from vernacular.protocols.schema import REQUESTS
from vernacular.stages.common import Batch, check_inputs, items_in, read_loadable
from vernacular.types import SIMIL_EVAL_STYLES

log = logging.getLogger("vernacular")


class Similarity(Stage):
    """Compute the similarity of generated outputs to the options."""

    spec: SimilaritySpec  # of the rule: what the results depend on
    model: Path  # record of the evaluated model
    encoders: list[Path]  # their records
    items_dir: Path  # directory of the items files
    requests_dir: Path  # directory of the requests files
    generations: list[Path]  # files of generated outputs
    out: Path  # directory of the similarity files
    store: Path  # directory of the store


def similarity(args: Similarity) -> str:
    """Compute the similarity of each response to every option, for the evaluations of one model that lack it."""
    evaluations = _SimilarityFiles(args)
    return evaluations.run(f"similarity: {evaluations.model.name}")


class _SimilarityFiles(Batch):
    """The similarities of one model, a file per evaluation."""

    done_label = "computed"
    kind = SIMILARITIES
    prints_files = False

    def __init__(self, args):
        super().__init__(args)
        records = {path: read_loadable(path) for path in [*args.encoders, args.model]}
        self.model = records[args.model]
        self.encoder_records = {path.stem: records[path] for path in args.encoders}
        self.generations = {path.stem: path for path in args.generations}
        # sorted by items: evaluations of the same items share their options, whose vectors are cached
        self.specs = dict(sorted(self.specs.items(), key=lambda entry: entry[1].items_stem))

    def metadata(self, spec: SimilaritySettings) -> SimilaritiesMetadata:
        """Return a fingerprint of all inputs; the options may change without the prompts, and so the responses."""
        encoders = [record.fingerprint for record in self._encoders(spec).values()]
        generations = artifacts.metadata(self.generations[spec.evaluation], GENERATIONS).fingerprint
        inputs = self.inputs(spec), encoders, self.items(spec), self.requests(spec), generations
        fingerprint = artifacts.input_fingerprint(*inputs)
        return SimilaritiesMetadata(evaluation=spec.evaluation, generations=generations, fingerprint=fingerprint)

    def make(self, path: Path, spec: SimilaritySettings) -> str:
        generations = self.generations[spec.evaluation]
        output_metadata = artifacts.metadata(generations, GENERATIONS)
        if not output_metadata.outcome.is_complete:
            self.write(path, spec, [], outcome=output_metadata.outcome)
            return "no outputs"
        items, requests = self.items(spec), self.requests(spec)
        check_inputs(items, requests, generations, output_metadata, self.model)
        item_rows, texts = items_in(items), artifacts.read(generations, GENERATIONS).to_pylist()
        request_rows = artifacts.read(requests, REQUESTS).to_pylist()
        encoders = self._encoders(spec)
        # the model is in the key only where it is the encoder
        named = [[metric, record.name, record.revision, record.fingerprint] for metric, record in encoders.items()]
        key = fingerprint([self.inputs(spec), named, item_rows, request_rows, texts])
        store = Store(self.args.store)
        try:
            found = store.get(key, SIMILARITIES)
        except StoreError as error:
            log.warning("similarity: %s", error)
            found = None
        if found:
            rows, metadata = found
            metadata = {name: metadata[name] for name in ("signatures", "encoders", "counts")}
        else:
            from vernacular.metrics.similarity.compute import similarities  # torch

            rows, metadata = similarities(
                item_rows, texts, spec.metrics, encoders, style=spec.style, language=spec.language,
                requests=request_rows, threads=self.args.threads,
            )  # fmt: skip
        self.write(path, spec, rows, **metadata)
        if not found and not metadata["outcome"].missing:
            try:
                store.put(key, SIMILARITIES, artifacts.read(path, SIMILARITIES), metadata)
            except StoreError as error:  # such as that of a group that may only read it
                log.warning("similarity: %s", error)
        return format_count(len(rows), "row")

    def failure(self, spec: SimilaritySettings, reason: str) -> Outcome:
        """Return the outcome of the generations, and if there are any, that all metrics are missing."""
        outcome = artifacts.metadata(self.generations[spec.evaluation], GENERATIONS).outcome
        missing = {metric["metric"]: reason for metric in spec.metrics}
        return Outcome(missing=missing) if outcome.is_complete else outcome

    def _encoders(self, spec: SimilaritySettings) -> dict[str, ModelRecord]:
        """Return the record of each metric's encoder; Simil-Eval compares by the evaluated model itself."""
        encoders = {metric: self.encoder_records[name] for metric, name in spec.encoders.items()}
        if spec.style in SIMIL_EVAL_STYLES:
            encoders |= dict.fromkeys(outputs.SELF_ENCODED, self.model)
        return encoders
