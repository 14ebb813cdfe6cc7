"""Commands `publish` and `join`: a directory of a run's results for others, and one leaderboard of several of them.

What is published contains no paths, addresses of servers, and keys: the finished directory is searched for all three
before it takes its name.
"""

import html
import json
import logging
import os
import re
import shlex
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import get_token

from vernacular.comparison.schema import PROMPTS, is_estimate
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, DataError, UserError, format_count
from vernacular.core.fingerprint import fingerprint
from vernacular.core.metadata import MetricsMetadata
from vernacular.core.names import free_name
from vernacular.core.paths import display_path, is_public_address, publishable
from vernacular.core.tables import to_frame, write_csv
from vernacular.exchange.eval_results import write_eval_results
from vernacular.exchange.every_eval_ever import every_eval_ever, write_every_eval_ever
from vernacular.exchange.lm_eval_results import write_lm_eval_results
from vernacular.exchange.publications import PublishedTables, read_tables
from vernacular.metrics.schema import METRICS, RESULTS, TASK_RESULTS
from vernacular.summary.grid import as_questions, combine_tables, make_headings, to_arrow, wide
from vernacular.summary.prompts import standard_errors
from vernacular.summary.workbook import dataset_sources, write_leaderboard
from vernacular.types import ALL_PROMPTS

log = logging.getLogger("vernacular")
_TABLES = ("*.csv", "*.xlsx")
_SOURCES = ("source", "adapter source")  # of the description of a model


def publish(args) -> str:
    """Write the report, the tables, and the results in the formats of lm-eval, Every Eval Ever (per item) and the Hub.

    Nothing is uploaded; the commands that upload are a part of the returned text.

    Raises:
        UserError: The directory is not empty, or a file contains a private text.
        DataError: The directory contains no summary or no report.
    """
    summary = args.results / "summary"
    for name in ("summary/results.parquet", "report/index.html"):
        if not (args.results / name).exists():
            raise DataError(f"{args.results}: no {name}. Specify the directory of a finished run: results")
    _check_empty(args.directory)
    temporary = args.directory.with_name(f".{args.directory.name}.{os.getpid()}.tmp")
    try:
        ignored = shutil.ignore_patterns(".snakemake*", ".vernacular*")
        shutil.copytree(args.results / "report", temporary / "report", ignore=ignored)
        (temporary / "tables").mkdir()
        for path in sorted(path for pattern in _TABLES for path in summary.glob(pattern)):
            shutil.copy(path, temporary / "tables")
        values = to_frame(artifacts.read(summary / "results.parquet", RESULTS))
        values = values.assign(adapter=values["adapter"].map(publishable, na_action="ignore"))
        recorded = artifacts.metadata(summary / "results.parquet")
        described = recorded["models"]
        models, path = publishable(described), summary / "prompts.parquet"  # which a run with comparisons has
        prompts = artifacts.read(path, PROMPTS).to_pylist() if path.exists() else []
        metadata = {"models": models, "notes": [], "fingerprint": fingerprint([args.organization, models])}
        artifacts.write(temporary / "tables" / "results.parquet", RESULTS, to_arrow(values), metadata)
        artifacts.write(temporary / "tables" / "prompts.parquet", PROMPTS, prompts, metadata)
        values = values[~values["metric"].map(is_estimate)]  # of people, and of several models
        source = {"source_organization_name": args.organization, "evaluator_relationship": args.relationship}
        metrics = _write_exchange_files(args.results, temporary, values, models, prompts, source)
        datasets = dataset_sources(metrics)
        records = [record["model_info"] for record in every_eval_ever(values, models, datasets)]
        on_hub = {each["name"]: each["id"] for each in records if each.get("inference_platform") == "HuggingFace"}
        benchmarks = recorded.get("benchmarks", {})
        pages, left_out = write_eval_results(temporary / "eval_results", values, on_hub, datasets, metrics, benchmarks)
        sources = [model[key] for model in described for key in _SOURCES if model.get(key)]
        roots = [Path.cwd(), Path.home(), args.results.resolve().parent]
        unknown = check_nothing_private(temporary, roots, sources, recorded.get("api_key_env", []))
        if args.directory.exists():
            args.directory.rmdir()
        temporary.rename(args.directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    n_files = sum(path.is_file() for path in args.directory.rglob("*"))
    is_complete = (summary / "complete.txt").exists()
    note = "" if is_complete else "; some results are missing (tables/notes.csv)"
    note += f"; not searched for the key in {', '.join(unknown)} (not set, or too short)" if unknown else ""
    note += "".join(f"\nnot for the Hub: {reason}" for reason in left_out)
    for repository, path in pages.items():
        uploaded = shlex.quote(str(args.directory / path.relative_to(temporary)))
        note += f"\nto propose the values for the model's page: hf upload {repository} {uploaded} . --create-pr"
    return f"publish: {format_count(n_files, 'file')} in {args.directory}{note}"


def _check_empty(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UserError(f"{directory}: exists and is not empty. Choose another name, or remove it.")


def _write_exchange_files(
    results: Path, directory: Path, values: pd.DataFrame, models: list[dict], prompts: list[dict], source: dict
) -> list[MetricsMetadata]:
    """Write the files of other tools; return the metadata of the models' values."""
    paths = (results / model["name"] / "metrics.parquet" for model in models)
    metrics = [artifacts.metadata(path, METRICS) for path in paths if path.exists()]  # of a model that failed: none
    datasets = dataset_sources(metrics)
    write_lm_eval_results(directory / "lm_eval", standard_errors(values, prompts))
    runs = values[values["prompt"] != ALL_PROMPTS]  # a mean over prompts has no results per item

    def task_results(model: str) -> Iterator[tuple[str, pa.Table]]:
        for evaluation in dict.fromkeys(runs[runs["model"] == model]["evaluation"]):
            path = results / model / "tasks" / f"{evaluation}.parquet"
            if artifacts.metadata(path, TASK_RESULTS).outcome.is_complete:
                yield evaluation, artifacts.read(path, TASK_RESULTS)

    write_every_eval_ever(directory, values, models, datasets, task_results=task_results, source=source)
    return metrics


_SECRET_NAMES = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD)(_|$)", re.IGNORECASE)
_MIN_SECRET = 16  # characters; a shorter value, such as "disabled", is not a key
_MIN_SERVER_KEY = 8  # characters of the key of a server; "EMPTY" and "none" are none


def check_nothing_private(directory: Path, roots: list[Path], sources: list[str], key_names: list[str]) -> list[str]:
    """Raise UserError, with the file, if a file in `directory` contains a private text.

    Args:
        roots: Directories of this machine, below which no path may be named.
        sources: Paths and addresses of models: absolute paths and private addresses may not be named.
        key_names: Environment variables with the keys of servers, whatever their names.

    Returns:
        Those of `key_names` that were not searched for: not set, or too short to be a key.
    """
    texts = _paths(roots, sources) | _addresses(sources) | _secrets(key_names)
    forms = {form: name for text, name in texts.items() for form in _forms(text)}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        for part in _contents(path, max(map(len, forms), default=0)):
            for form, name in forms.items():
                if form in part:
                    raise UserError(
                        f"{path.relative_to(directory)}: contains {name}. Nothing is published; use relative paths in "
                        "the config, and run the workflow again."
                    )
    return [name for name in key_names if len(os.environ.get(name, "").strip()) < _MIN_SERVER_KEY]


def _paths(roots: list[Path], sources: list[str]) -> dict[str, str]:
    """Return {text: description} of paths, also as parts of the names that are derived from them."""
    texts = {f"{path}/": f"the path {path}/" for path in roots if len(path.parts) > 1}
    deep = [path for path in roots if len(path.parts) > 2]
    texts |= {f"{'-'.join(path.parts[1:])}-": f"a name made of the path {path}/" for path in deep}
    return texts | {source: f"the path {source}" for source in sources if source.startswith("/") and "/" in source[1:]}


def _addresses(sources: list[str]) -> dict[str, str]:
    """Return {text: description} of hosts of servers."""
    texts = {}
    for source in sources:
        if source.startswith(("http://", "https://")) and not is_public_address(source):
            address = urlsplit(source).netloc
            forms = (f"//{address}", address) if ":" in address else (f"//{address}",)
            texts |= dict.fromkeys(forms, f"the address {source}")
    return texts


def _secrets(key_names: list[str]) -> dict[str, str]:
    """Return {value: description} of keys: of servers, of the Hub, and in environment variables named like keys."""
    values = {
        value.strip(): f"the value of the environment variable {name}"
        for name, value in os.environ.items()
        if len(value.strip()) >= (_MIN_SERVER_KEY if name in key_names else _MIN_SECRET)
        and (name in key_names or _SECRET_NAMES.search(name))
    }
    token = get_token()  # also from the file that `hf auth login` writes
    return {token: "the token of the Hub"} | values if token else values


def _forms(text: str) -> set[bytes]:
    """Return a text as it is, and as it is escaped in JSON, XML and CSV."""
    variants = {text, json.dumps(text)[1:-1], json.dumps(text).replace("/", "\\/")[1:-1], text.replace('"', '""')}
    variants |= {html.escape(text), html.escape(text, quote=False), json.dumps(text, ensure_ascii=False)[1:-1]}
    forms = {variant.encode("utf-8", "surrogatepass") for variant in variants}
    return forms | {html.escape(text, quote=False).encode("ascii", "xmlcharrefreplace")}  # as openpyxl does


_CHUNK = 1 << 24  # bytes; the results per item of a model may have gigabytes


def _contents(path: Path, longest: int) -> Iterator[bytes]:
    """Yield the content of a file; of a workbook or a table, what is compressed in it.

    A large file is divided into parts that overlap by `longest` bytes, so that no text is divided.
    """
    if path.suffix == ".xlsx":
        with zipfile.ZipFile(path) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    elif path.suffix == ".parquet":
        table = pq.ParquetFile(path).read()
        yield from (table.schema.metadata or {}).values()
        for column in table.columns:
            if pa.types.is_string(column.type) or pa.types.is_list(column.type):
                values = column.unique() if pa.types.is_string(column.type) else column
                yield json.dumps(values.to_pylist(), ensure_ascii=False).encode("utf-8", "surrogatepass")
    else:
        with open(path, "rb") as file:
            end = b""
            while chunk := file.read(_CHUNK):
                yield end + chunk
                end = (end + chunk)[-longest:] if longest else b""


_COMPARABLE = {"dataset_revision": "dataset revisions", "signature": "signatures"}  # if these are equal


def join(args) -> str:
    """Write the tables of all publications in a directory: results.csv, wide.csv, leaderboard.xlsx and notes.csv.

    A model of a name that several publications use is named `name (publication)`. Values of one evaluation and metric
    that are not comparable, because they were computed from other data or in another way, are noted. The leaderboard
    has means over prompts in their place; single prompts remain where a model has no mean, and are named then. A
    publication that is not valid is left out and noted.

    Raises:
        DataError: The directory contains no publication, or none that is valid.
        UserError: The directory to write is not empty.
    """
    _check_empty(args.out)
    publications, failed = _read_all(args.directory)
    new_names = _new_names({name: tables.values for name, tables in publications.items()})
    values = combine_tables([to_arrow(_renamed(each.values, new_names[name])) for name, each in publications.items()])
    prompts = [
        row | {"model": new_names[name].get(row["model"], row["model"])}
        for name, tables in publications.items()
        for row in tables.prompts
    ]
    differences = [*_differences(values), *_prompt_differences(prompts), *_text_differences(publications)]
    differences += _contradictions(publications)
    left_out = [
        {"evaluation": None, "metric": None, "note": f"publication {name}: left out: {reason}"}
        for name, reason in failed.items()
    ]
    notes = pd.DataFrame([*left_out, *differences], columns=["evaluation", "metric", "note"])
    write_csv(args.out / "results.csv", values.assign(basis=_bases(values, publications, new_names)))
    write_csv(args.out / "wide.csv", wide(values, make_headings(values, {}, default_prompt=True)))
    write_csv(args.out / "notes.csv", notes)
    described = [
        {
            "publication": name,
            "models": ", ".join(tables.values["model"].unique()),
            "evaluations": format_count(tables.values["evaluation"].nunique(), "evaluation"),
        }
        for name, tables in publications.items()
    ]
    provenance = {"publications": described, "notes": notes.to_dict("records")}
    questions = _questions(values, prompts)
    headings = make_headings(questions, {}, default_prompt=True)
    write_leaderboard(args.out / "leaderboard.xlsx", questions, provenance, headings=headings)
    note = f"; {format_count(len(differences), 'difference')} in notes.csv" if differences else ""
    note += f"; {format_count(len(failed), 'publication')} left out (notes.csv)" if failed else ""
    models = format_count(values["model"].nunique(), "model")
    return f"join: {models} of {format_count(len(publications), 'publication')} in {args.out}{note}"


def _read_all(directory: Path) -> tuple[dict[str, PublishedTables], dict[str, str]]:
    """Return the publications in a directory by name, and the reasons of those that are not valid.

    Raises:
        DataError: None is valid.
    """
    publications, failed = {}, {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.name.startswith(".") or not any((path / name).is_dir() for name in ("tables", "data/vernacular")):
            continue
        try:
            publications[path.name] = _read(path)
        except UserError as error:
            failed[path.name] = str(error)
            log.warning("join: %s: left out: %s", path.name, error)
    if not publications and failed:
        raise DataError(f"{directory}: no valid publications: {'; '.join(failed.values())}")
    if not publications:
        raise DataError(f"{directory}: no publications found (expected directories written by `vernacular publish`).")
    return publications, failed


def _read(directory: Path) -> PublishedTables:
    tables = read_tables(directory, PROMPTS)
    try:
        combine_tables([to_arrow(tables.values)])
    except ArtifactError as error:  # two values of one metric
        raise DataError(f"{display_path(directory)}: {error}") from None
    return tables


def _contradictions(publications: dict[str, PublishedTables]) -> list[dict]:
    """Return a row for each value that the results per item beside it contradict; their mean is used instead."""
    return [
        {"evaluation": evaluation, "metric": metric, "note": f"contradicted: {publication}: {model}: {text}"}
        for publication, tables in publications.items()
        for (model, evaluation, metric), text in tables.computed.items()
        if text
    ]


def _bases(values: pd.DataFrame, publications: dict[str, PublishedTables], new_names: dict) -> list[str]:
    """Return what each value is based on: results per item that were read here, or its publisher's statement."""
    computed = {
        (new_names[publication].get(model, model), *rest)
        for publication, tables in publications.items()
        for model, *rest in tables.computed
    }
    keys = zip(values["model"], values["evaluation"], values["metric"], values["category"].fillna(""), strict=True)
    return ["results per item" if key[:3] in computed and not key[3] else "stated by the publisher" for key in keys]


def _new_names(publications: dict[str, pd.DataFrame]) -> dict[str, dict[str, str]]:
    """Return the new names of models and bases that several publications have, regardless of case, by publication."""
    names = {
        publication: list(dict.fromkeys([*frame["model"], *frame["base"].dropna()]))
        for publication, frame in publications.items()
    }
    counts = Counter(name for each in names.values() for name in {name.casefold() for name in each})
    taken = set(counts)
    return {
        publication: {name: free_name(f"{name} ({publication})", taken) for name in each if counts[name.casefold()] > 1}
        for publication, each in names.items()
    }


def _renamed(frame: pd.DataFrame, new: dict[str, str]) -> pd.DataFrame:
    """Return the values with the new names of models, also where one is the base of an adapter."""
    return frame.assign(**{name: frame[name].map(lambda model: new.get(model, model)) for name in ("model", "base")})


def _questions(values: pd.DataFrame, prompts: list[dict]) -> pd.DataFrame:
    """Return the values without the single prompts of a mean, unless another model has a single prompt only."""
    without = as_questions(values, prompts)
    alone = set(without[without["prompt"] != ALL_PROMPTS]["evaluation"])
    questions = set(zip(without["model"], without["evaluation"], strict=True))
    kept = [
        evaluation in alone or (model, evaluation) in questions
        for model, evaluation in zip(values["model"], values["evaluation"], strict=True)
    ]
    return values[pd.Series(kept, index=values.index, dtype=bool)].reset_index(drop=True)


def _differences(values: pd.DataFrame) -> list[dict]:
    """Return a row for each evaluation and metric whose values are not comparable between models."""
    rows = []
    all_items = values[values["category"].fillna("") == ""]
    for (evaluation, metric), group in all_items.groupby(["evaluation", "metric"], sort=False):
        for column, noun in _COMPARABLE.items():
            models = group.groupby(column, dropna=False)["model"].agg(", ".join)
            if len(models) > 1:
                texts = [f"{'unknown' if pd.isna(value) else value} ({names})" for value, names in models.items()]
                rows.append({"evaluation": evaluation, "metric": metric, "note": f"{noun}: {'; '.join(texts)}"})
    return rows


def _prompt_differences(prompts: list[dict]) -> list[dict]:
    """Return a row for each mean that models have over other prompts."""
    models: dict[tuple, dict[str, list[str]]] = {}
    for row in prompts:
        if row["baseline"] is None:
            names = models.setdefault((row["evaluation"], row["metric"]), {})
            names.setdefault(", ".join(sorted(row["prompts"])), []).append(row["model"])
    rows = []
    for (evaluation, metric), sets in models.items():
        if len(sets) > 1:
            texts = [f"{prompts} ({', '.join(names)})" for prompts, names in sets.items()]
            rows.append({"evaluation": evaluation, "metric": metric, "note": f"prompts: {'; '.join(texts)}"})
    return rows


def _text_differences(publications: dict[str, PublishedTables]) -> list[dict]:
    """Return a row for each evaluation in which items of one ID have other texts in another publication."""
    rows, first = [], {}
    for publication, tables in publications.items():
        for evaluation, hashes in tables.hashes.items():
            name, known = first.setdefault(evaluation, (publication, hashes))
            common = known.keys() & hashes.keys()
            if n := sum(known[item] != hashes[item] for item in common):
                items = format_count(len(common), "common item")
                note = f"texts: {n} of {items} have another prompt or other answers ({name}, {publication})"
                rows.append({"evaluation": evaluation, "metric": None, "note": note})
    return rows
