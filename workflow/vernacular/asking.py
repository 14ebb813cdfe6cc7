"""The verbs that ask: data set -> items -> requests -> scores and generations, and the models they need.

Each takes the parsed arguments, reads what the stage before left, calls the stage, writes what it returns, and gives
back the line that says what was made. The stages themselves touch no artifact. Imports stand inside the functions: a
verb that counts rows should not wait for torch.
"""

import logging
import sys
from collections import Counter
from pathlib import Path

from vernacular import artifacts
from vernacular.data.schema import ITEMS
from vernacular.errors import ArtifactError, DataError, ModelError
from vernacular.records import failures, read_record, write_asked, write_record
from vernacular.requests.schema import REQUESTS

log = logging.getLogger("vernacular")


def check(args) -> str:
    """Say what a config asks for; its mistakes are raised as ConfigError."""
    from vernacular import config

    found = config.load(args.config)
    for evaluation in found.evaluations:
        print(f"  {evaluation}")
    return f"check: {len(found.models)} models × {len(found.evaluations)} evaluations"


def items(args) -> str:
    """One data set in one language; a set that cannot be had leaves a file that says so, and the others go on."""
    from vernacular.config import WORKFLOW
    from vernacular.data.load import load_items

    spec = args.spec
    name = f"{spec['task']['task']}.{spec['language']}"
    try:
        rows, note = load_items(
            spec["task"],
            spec["language"],
            source=spec["data"],
            limit=spec["limit"],
            seed=0,
            root=WORKFLOW,
        )
    except DataError as error:
        log.error(str(error))
        note = {"task": spec["task"]["task"], "unavailable": str(error)}
        artifacts.write(args.out, ITEMS, [], {**note, "fingerprint": artifacts.made_of(note)})
        return f"items: {name} CANNOT BE HAD: {error}"
    made_of = artifacts.made_of(spec, note["source"]["sha256"])
    artifacts.write(args.out, ITEMS, rows, {**note, "fingerprint": made_of})
    for warning in note["warnings"]:
        log.warning(warning)
        print(f"items: {warning}", file=sys.stderr)
    shown = sum(row["demonstration"] for row in rows)
    dropped = sum(note["rows"]["dropped"].values())
    return (
        f"items: {name}: {len(rows) - shown} items"
        + (f", {shown} to draw demonstrations from" if shown else "")
        + (f", {dropped} rows left out (reasons in {args.log or 'the metadata'})" if dropped else "")
    )


def requests(args) -> str:
    """The prompts of one evaluation; of a set that could not be had, none."""
    from vernacular.estimates import size
    from vernacular.requests.build import CAUSAL_ONLY, build

    spec = args.spec
    source = artifacts.metadata(args.items)
    note = {key: spec[key] for key in ("evaluation", "language", "protocol", "shots", "seed", "style")}
    note |= {"task": spec["task"]["task"], "items": source, "causal_only": spec["protocol"] in CAUSAL_ONLY}
    note |= {"fingerprint": artifacts.made_of(spec, args.items)}
    if unavailable := source.get("unavailable"):
        artifacts.write(args.out, REQUESTS, [], {**note, "unavailable": unavailable})
        return f"requests: {spec['evaluation']}: none, the data set could not be had"
    given = ("language", "protocol", "shots", "seed", "style", "options")
    rows, built = build(items_in(args.items), spec["task"], **{key: spec[key] for key in given})
    artifacts.write(args.out, REQUESTS, rows, {**note, **built, "size": size(rows)})
    return f"requests: {spec['evaluation']}: {len(rows)}"


def model(args) -> str:
    """A model's files on this disk. One that cannot be had leaves a record that says so: the other models go on."""
    from vernacular.adapters import resolve_adapter
    from vernacular.checkpoints import resolve

    spec = args.spec
    name, source = spec["name"], spec.get("adapter") or spec["source"]
    try:
        if "adapter" in spec:
            base = read_record(args.base)
            if reason := base.get("unavailable"):
                raise ModelError(f"its base {base['name']} cannot be had: {reason}")
            allowed = {key: spec[key] for key in ("allow_pickle", "allow_other_base")}
            record = resolve_adapter(name, source, base, **allowed)
        else:
            converted = args.out.parent / "converted"
            record = resolve(name, source, converted, kind=spec["kind"], allow_pickle=spec["allow_pickle"])
    except ModelError as error:
        return _not_to_be_had(args, source, error)
    write_record(args.out, record)
    if adapter := record.get("adapter"):
        return f"model: {name} is {record['base']} with a {adapter['type']} adapter of rank {adapter['rank']}"
    return f"model: {name} is {record['architecture']} ({record['kind']}), {_size(record['bytes'])}"


def encoder(args) -> str:
    """An encoder's files on this disk. One that cannot be had leaves a record that says so, and costs its metrics."""
    from vernacular.checkpoints import resolve

    spec = args.spec
    allow_pickle = spec.get("allow_pickle", False)
    converted = args.out.parent / "converted"
    try:
        record = resolve(spec["name"], spec["source"], converted, kind="encoder", allow_pickle=allow_pickle)
    except ModelError as error:
        return _not_to_be_had(args, spec["source"], error)
    write_record(args.out, {**record, **{key: spec.get(key) for key in ("layer", "prefix", "allow_pickle")}})
    return f"encoder: {spec['name']} is {record['architecture']}, {_size(record['bytes'])}"


def _not_to_be_had(args, source: str, error: ModelError) -> str:
    log.error(str(error))
    name = args.spec["name"]
    write_record(args.out, {"name": name, "source": source, "unavailable": str(error)})
    return f"{args.verb}: {name} CANNOT BE HAD: {error}"


def infer(args) -> str:
    """Everything a base and its adapters are asked, or a shard of it, into the store.

    All evaluations are tried. What cannot be answered is said in the file, and goes into the summary's notes: the other
    evaluations and models go on.
    """
    from vernacular.inference.run import run_group

    records = [_asked_as(path, args.spec) for path in args.models]
    index, count = (int(number) for number in args.shard.split("of"))
    asked = {path.stem: path for path in args.requests}
    done, failed = run_group(records, asked, args.store, shard=(index - 1, count), threads=args.threads)
    write_asked(args.out, done, failed)
    told = [_failure(name, of_model, done[name]) for name, of_model in failed.items() if of_model]
    for line in told:
        log.error(line)
    counts = Counter(how for of_model in done.values() for how in of_model.values())
    counts["CANNOT BE ANSWERED"] = sum(map(len, failed.values()))
    said = ", ".join(f"{n} evaluations {how}" for how, n in sorted(counts.items()) if n)
    return "\n".join([*told, f"infer: {', '.join(done)}: {said or 'nothing to ask'}"])


def answers(args) -> str:
    """One model's scores and generations, laid out from the store; `--asked` are the records that the jobs are done."""
    from vernacular.inference.answers import lay_out

    record = _asked_as(args.model, args.spec)
    asked = {path.stem: path for path in args.requests}
    try:
        failed = {e: reason for path in args.asked for e, reason in failures(path, record["name"]).items()}
        counts = lay_out(record, asked, args.out, args.store, shards=len(args.asked), failed=failed)
    except ArtifactError:
        for path in args.asked:  # so that the next run asks again
            path.unlink(missing_ok=True)
        raise
    return f"answers: {record['name']}: " + ", ".join(f"{n} evaluations {how}" for how, n in counts.items() if n)


def _asked_as(path: Path, spec: dict) -> dict:
    """A model's record, and the settings that say how it is asked."""
    record = read_record(path)
    return record | spec["models"][record["name"]]


def _failure(name: str, failed: dict[str, str], done: dict) -> str:
    """One line where all failed for one reason, else one for each evaluation."""
    if not done and len(set(failed.values())) == 1:
        return f"infer: {name} CANNOT BE ASKED: {next(iter(failed.values()))}"
    return "\n".join(f"infer: {name} CANNOT ANSWER {evaluation}: {reason}" for evaluation, reason in failed.items())


def treebank(args) -> str:
    """The minimal pairs that patterns find in treebanks: explained, or as a CSV file, or both."""
    from vernacular.data.treebank.explain import csv_text, explain
    from vernacular.data.treebank.extract import extract
    from vernacular.data.treebank.pattern import load_pattern

    found = extract(args.treebank, [load_pattern(name) for name in args.pattern], args.forms)
    if args.csv:
        with artifacts.replacing(args.csv) as temporary:
            temporary.write_text(csv_text(found.rows), "utf-8")
    if args.explain or not args.csv:
        print(explain(found, examples=args.examples))
    matches = sum(pairs.related for pairs in found.pairs)
    return f"treebank: {len(found.rows)} pairs of {matches} matches in {found.sentences} sentences"


def items_in(path: Path) -> list[dict]:
    return artifacts.read(path, ITEMS).to_pylist(maps_as_pydicts="strict")


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
