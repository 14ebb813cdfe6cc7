"""Command `similarity`: similarity of generated responses to every option, for one model."""

import logging
from pathlib import Path

from tqdm import tqdm

from vernacular.commands.common import check_inputs, check_recorded, items_in, why_missing
from vernacular.core import artifacts
from vernacular.core.errors import UserError, counted, first_line, is_contained
from vernacular.core.records import read_record
from vernacular.inference.schema import GENERATIONS
from vernacular.metrics.schema import SIMILARITIES
from vernacular.metrics.similarity.answers import TOOLS
from vernacular.metrics.similarity.compute import similarities
from vernacular.protocols.schema import REQUESTS

log = logging.getLogger("vernacular")


def similarity(args) -> str:
    """Compute the similarity of each response to every option, for all evaluations of one model."""
    jobs = _jobs(args)
    for job in tqdm(jobs, desc="similarity", disable=None):
        try:
            job.run(args)
        except UserError:
            raise
        except BaseException as error:
            if not is_contained(error):
                raise
            log.exception("%s failed", job.evaluation)
            job.give_up(f"{type(error).__name__}: {first_line(error)}")
    return f"similarity: {counted(len(jobs), 'evaluation')}"


def give_up(args, reason: str) -> str:
    """Write, for evaluations that this job did not finish, files with the reason why all metrics are missing."""
    unfinished = [job for job in _jobs(args) if not job.target.exists()]
    for job in unfinished:
        job.give_up(reason)
    name = read_record(args.model)["name"]
    return f"similarity: {name}: {counted(len(unfinished), 'evaluation')} without similarity ({reason})"


def _jobs(args) -> "list[_Job]":
    records = {path: read_record(path) for path in [*args.encoders, args.model]}
    for path, record in records.items():
        check_recorded(path, record)
    known = {path.name.removesuffix(".json"): records[path] for path in args.encoders}
    model = records[args.model]
    generations = {path.stem: path for path in args.generations}
    # sorted by items: evaluations of the same items share their options, whose vectors are cached
    wanted = sorted(args.spec["evaluations"].items(), key=lambda each: each[1]["items"])
    return [_Job(args, evaluation, what, known, model, generations[evaluation]) for evaluation, what in wanted]


class _Job:
    """One evaluation of one model."""

    def __init__(self, args, evaluation: str, what: dict, known: dict, model: dict, generations: Path):
        self.evaluation, self.what, self.model, self.generations = evaluation, what, model, generations
        self.target = args.out / f"{evaluation}.parquet"
        self.encoders = {metric: known[name] for metric, name in what["encoders"].items()}
        if tool := TOOLS.get(what["style"]):
            self.encoders |= dict.fromkeys(tool.SELF_ENCODED, model)
        self.answered = artifacts.metadata(generations)
        encoders = [record.get("fingerprint") for record in self.encoders.values()]
        self.made_of = artifacts.made_of(what, encoders, generations)

    def run(self, args) -> None:
        if missing := why_missing(self.answered):
            artifacts.write(self.target, SIMILARITIES, [], {**missing, "fingerprint": self.made_of})
            return
        items = args.items_dir / f"{self.what['items']}.parquet"
        requests = args.requests_dir / f"{self.evaluation}.parquet"
        check_inputs(items, requests, self.generations, self.answered, self.model)
        rows, found = similarities(
            items_in(items),
            artifacts.read(self.generations, GENERATIONS).to_pylist(),
            self.what["metrics"],
            self.encoders,
            requests=artifacts.read(requests, REQUESTS).to_pylist(),
            style=self.what["style"],
            language=self.what["language"],
            threads=args.threads,
        )
        self._write(rows, found)

    def give_up(self, reason: str) -> None:
        """Write a file without rows, with the reason in its metadata."""
        if missing := why_missing(self.answered):
            artifacts.write(self.target, SIMILARITIES, [], {**missing, "fingerprint": self.made_of})
            return
        without = {spec["metric"]: reason for spec in self.what["metrics"]}
        self._write([], {"signatures": {}, "encoders": {}, "without": without})

    def _write(self, rows: list[dict], found: dict) -> None:
        about = {"evaluation": self.evaluation, **found, "generations": self.answered.get("fingerprint")}
        artifacts.write(self.target, SIMILARITIES, rows, {**about, "fingerprint": self.made_of})
