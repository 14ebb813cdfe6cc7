"""Command `similarity`: generations -> their similarity to every option, for one model."""

from tqdm import tqdm

from vernacular.commands.common import check_inputs, check_recorded, items_in, why_missing
from vernacular.core import artifacts
from vernacular.core.records import read_record
from vernacular.inference.schema import GENERATIONS
from vernacular.metrics.schema import SIMILARITIES
from vernacular.metrics.similarity.compute import similarities
from vernacular.requests.schema import REQUESTS


def similarity(args) -> str:
    """How similar each generated answer is to every option, for all evaluations of one model."""
    records = {path: read_record(path) for path in [*args.encoders, args.model]}
    for path, record in records.items():
        check_recorded(path, record)
    known = {path.name.removesuffix(".json"): records[path] for path in args.encoders}
    model = records[args.model]
    generations = {path.stem: path for path in args.generations}
    # evaluations of the same items in a row: they share their options, whose vectors are kept
    wanted = sorted(args.spec["evaluations"].items(), key=lambda each: each[1]["items"])
    for evaluation, what in tqdm(wanted, desc="similarity", disable=None):
        target = args.out / f"{evaluation}.parquet"
        encoders = {metric: known[name] for metric, name in what["encoders"].items()}
        if what["style"].startswith("simil-eval"):
            encoders["cosine"] = model  # as that tool does, which is why its cosines compare no two models
        made_of = artifacts.made_of(
            what, [record.get("fingerprint") for record in encoders.values()], generations[evaluation]
        )
        items = args.items_folder / f"{what['items']}.parquet"
        requests = args.requests_folder / f"{evaluation}.parquet"
        answered = artifacts.metadata(generations[evaluation])
        if missing := why_missing(answered):
            artifacts.write(target, SIMILARITIES, [], {**missing, "fingerprint": made_of})
            continue
        check_inputs(items, requests, generations[evaluation], answered, model)
        rows, found = similarities(
            items_in(items),
            artifacts.read(generations[evaluation], GENERATIONS).to_pylist(),
            what["metrics"],
            encoders,
            requests=artifacts.read(requests, REQUESTS).to_pylist(),
            style=what["style"],
            language=what["language"],
            threads=args.threads,
        )
        artifacts.write(
            target,
            SIMILARITIES,
            rows,
            {"evaluation": evaluation, **found, "generations": answered["fingerprint"], "fingerprint": made_of},
        )
    return f"similarity: {len(generations)} evaluations"
