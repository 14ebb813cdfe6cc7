"""Command `similarity`: similarity of generated responses to every option, for one model."""

import logging
from pathlib import Path

from vernacular.commands.common import check_inputs, check_recorded, items_in, missing_reason
from vernacular.core import artifacts
from vernacular.core.errors import UserError, first_line, format_count, is_contained
from vernacular.core.progress import Progress
from vernacular.core.records import read_record
from vernacular.inference.schema import GENERATIONS
from vernacular.metrics.schema import SIMILARITIES
from vernacular.metrics.similarity.outputs import TOOLS
from vernacular.protocols.schema import REQUESTS

log = logging.getLogger("vernacular")


def similarity(args) -> str:
    """Compute the similarity of each response to every option, for all evaluations of one model."""
    jobs, name = _jobs(args), read_record(args.model)["name"]
    with Progress(f"similarity {name}", len(jobs), "evaluation") as progress:
        for job in jobs:
            try:
                job.run(args)
            except UserError:
                raise
            except BaseException as error:
                if not is_contained(error):
                    raise
                log.exception("%s failed", job.evaluation)
                job.give_up(f"{type(error).__name__}: {first_line(error)}")
            progress.advance()
    return f"similarity: {name}: {format_count(len(jobs), 'evaluation')}"


def give_up(args, reason: str) -> str:
    """Write, for evaluations that this job did not finish, files with the reason why all metrics are missing."""
    unfinished = [job for job in _jobs(args) if not job.target.exists()]
    for job in unfinished:
        job.give_up(reason)
    name = read_record(args.model)["name"]
    return f"similarity: {name}: {format_count(len(unfinished), 'evaluation')} without similarity ({reason})"


def _jobs(args) -> "list[_Job]":
    records = {path: read_record(path) for path in [*args.encoders, args.model]}
    for path, record in records.items():
        check_recorded(path, record)
    encoders_by_name = {path.name.removesuffix(".json"): records[path] for path in args.encoders}
    model = records[args.model]
    generations = {path.stem: path for path in args.generations}
    # sorted by items: evaluations of the same items share their options, whose vectors are cached
    evaluations = sorted(args.spec["evaluations"].items(), key=lambda entry: entry[1]["items"])
    return [_Job(args, name, spec, encoders_by_name, model, generations[name]) for name, spec in evaluations]


class _Job:
    """One evaluation of one model."""

    def __init__(self, args, evaluation: str, spec: dict, encoders_by_name: dict, model: dict, generations: Path):
        self.evaluation, self.spec, self.model, self.generations = evaluation, spec, model, generations
        self.target = args.out / f"{evaluation}.parquet"
        self.encoders = {metric: encoders_by_name[name] for metric, name in spec["encoders"].items()}
        if tool := TOOLS.get(spec["style"]):
            self.encoders |= dict.fromkeys(tool.SELF_ENCODED, model)
        self.output_metadata = artifacts.metadata(generations)
        encoders = [record.get("fingerprint") for record in self.encoders.values()]
        self.input_fingerprint = artifacts.input_fingerprint(spec, encoders, generations)

    def run(self, args) -> None:
        if missing := missing_reason(self.output_metadata):
            artifacts.write(self.target, SIMILARITIES, [], {**missing, "fingerprint": self.input_fingerprint})
            return
        from vernacular.metrics.similarity.compute import similarities  # imports torch, which a masked model needs not

        items = args.items_dir / f"{self.spec['items']}.parquet"
        requests = args.requests_dir / f"{self.evaluation}.parquet"
        check_inputs(items, requests, self.generations, self.output_metadata, self.model)
        rows, similarity_metadata = similarities(
            items_in(items),
            artifacts.read(self.generations, GENERATIONS).to_pylist(),
            self.spec["metrics"],
            self.encoders,
            requests=artifacts.read(requests, REQUESTS).to_pylist(),
            style=self.spec["style"],
            language=self.spec["language"],
            threads=args.threads,
        )
        self._write(rows, similarity_metadata)

    def give_up(self, reason: str) -> None:
        """Write a file without rows, with the reason in its metadata."""
        if missing := missing_reason(self.output_metadata):
            artifacts.write(self.target, SIMILARITIES, [], {**missing, "fingerprint": self.input_fingerprint})
            return
        missing_metrics = {metric["metric"]: reason for metric in self.spec["metrics"]}
        self._write([], {"signatures": {}, "encoders": {}, "missing_metrics": missing_metrics})

    def _write(self, rows: list[dict], similarity_metadata: dict) -> None:
        file_metadata = {
            "evaluation": self.evaluation,
            **similarity_metadata,
            "generations": self.output_metadata.get("fingerprint"),
        }
        artifacts.write(self.target, SIMILARITIES, rows, {**file_metadata, "fingerprint": self.input_fingerprint})
