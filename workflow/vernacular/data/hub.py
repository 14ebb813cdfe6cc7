"""Rows of a dataset on the Hugging Face Hub: pinned to a commit, stored in the Hub's cache, read without its code.

`datasets` determines the files of each split of a configuration by its own rules; only these are downloaded, and
loading scripts are never run.
"""

import fnmatch
import glob
import re
from functools import partial
from pathlib import Path

import huggingface_hub
import yaml
from datasets.data_files import DataFilesList, EmptyDatasetError, get_data_patterns, sanitize_patterns
from datasets.utils.metadata import MetadataConfigs

from vernacular.core.errors import DataError, first_line, suggest
from vernacular.core.hub_snapshot import snapshot as any_snapshot
from vernacular.data.columns import SchemaMismatchError
from vernacular.data.readers import Row, detect_format, read_rows

snapshot = partial(any_snapshot, repo_type="dataset", error_class=DataError, missing_file_error=SchemaMismatchError)

_EXTENSIONS = ("csv", "tsv", "json", "jsonl", "ndjson", "parquet")


def fetch(source: dict) -> tuple[list[dict], list[dict], dict]:
    """Return (rows of `split`, rows of `few_shot`, provenance) of a `hub` source; each row has its `_config`.

    Raises SchemaMismatchError without the configuration, split or files, and DataError if it is unavailable.
    """
    repository = source["hub"]
    # not every repository has a card, but every one has .gitattributes
    snapshot_dir = snapshot(repository, source.get("revision"), ["README.md", ".gitattributes"])
    card = dataset_card(snapshot_dir, repository)
    configurations = _configurations(source, card, snapshot_dir, repository)
    rows, few_shot_rows, file_names = [], [], set()
    for config, splits, separator in configurations:
        for split, target_rows in ((source.get("split"), rows), (source.get("few_shot"), few_shot_rows)):
            if split is None and target_rows is few_shot_rows:
                continue
            split_rows, files = _split_rows(repository, snapshot_dir, splits, split, separator, config, source)
            for row in split_rows:
                row["_config"] = config or ""
            target_rows += split_rows
            file_names.update(files)
    provenance = {
        "kind": "hub",
        "repository": repository,
        "config": ", ".join(config for config, _, _ in configurations if config) or None,
        "split": source.get("split"),
        "few_shot": source.get("few_shot"),
        "revision": snapshot_dir.name,  # the cache stores a snapshot in …/snapshots/<commit>/
        "files": sorted(file_names),
        "license": _license(card),
    }
    return rows, few_shot_rows, provenance


def from_uri(file: str) -> dict:
    """Return the `hub` source of `hf://datasets/owner/name[@revision]/file`; raise DataError for any other address."""
    match = re.fullmatch(r"hf://datasets/([^/]+)/([^/@]+)(?:@([^/]*))?/(.+)", file)
    if match is None:
        raise DataError(f"{file}: expected hf://datasets/owner/name/file.")
    owner, name, revision, path = match.groups()
    source = {"hub": f"{owner}/{name}", "files": {"data": path}, "split": "data"}
    return source | ({"revision": revision} if revision else {})


def _configurations(
    source: dict, card: dict, snapshot_dir: Path, repository: str
) -> list[tuple[str | None, dict, str | None]]:
    """Return (configuration, file patterns by split, column separator) for each configuration of the source."""
    if "files" in source:
        files = {k: [v] if isinstance(v, str) else v for k, v in source["files"].items()}
        return [(None, _check_inside_repository(files, repository), None)]
    requested = source.get("config")
    try:
        configs = MetadataConfigs.from_dataset_card_data(card)
        default = configs.get_default_config_name() if configs else None
        if invalid := [name for name in configs if not isinstance(name, str)]:
            raise ValueError(f"{invalid[0]} is not text; put numbers in quotes")
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise DataError(
            f"{repository}: the configurations in its dataset card cannot be read ({first_line(error)})."
        ) from None
    if not configs:
        if requested not in (None, "default", ["*"]):
            raise SchemaMismatchError(
                f'{repository}: configuration "{requested}" not found (its dataset card lists none).'
            )
        return [(None, _infer_splits(repository, snapshot_dir), None)]
    if requested is None and default is None:
        raise SchemaMismatchError(f"{repository}: has several configurations; set config.{suggest('', configs)}")
    names = []
    for pattern in [requested or default] if isinstance(requested or default, str) else requested:
        matching = fnmatch.filter(configs, pattern)
        if not matching:
            raise SchemaMismatchError(f'{repository}: configuration "{pattern}" not found.{suggest(pattern, configs)}')
        names += [name for name in matching if name not in names]
    separators = {name: configs[name].get("sep") or configs[name].get("delimiter") for name in names}
    return [(n, _split_patterns(configs[n], repository, snapshot_dir), separators[n]) for n in names]


def _split_patterns(config: dict, repository: str, snapshot_dir: Path) -> dict[str, list[str]]:
    data_dir = str(config.get("data_dir") or "").strip("/")
    _check_inside_repository({"data_dir": [data_dir]}, repository)
    if not config.get("data_files"):
        return _infer_splits(repository, snapshot_dir, data_dir)
    splits = sanitize_patterns(config["data_files"])
    patterns = {
        str(split): [f"{data_dir}/{path}" if data_dir else path for path in paths] for split, paths in splits.items()
    }
    return _check_inside_repository(patterns, repository)


def _check_inside_repository(splits: dict[str, list[str]], repository: str) -> dict[str, list[str]]:
    """Return `splits`; raise DataError for a file outside the repository: a card may name any local file or URL."""
    for path in (path for paths in splits.values() for path in paths):
        if not isinstance(path, str) or "://" in path or path.startswith(("/", "~")) or ".." in path.split("/"):
            raise DataError(
                f"{repository}: lists a file outside of the repository ({path}); use a separate source for it."
            )
    return splits


def _infer_splits(repository: str, snapshot_dir: Path, data_dir: str = "") -> dict[str, list[str]]:
    """Return files by split, inferred from file and directory names, as `datasets` does if the card lists no files."""
    prefix = f"{data_dir}/" if data_dir else ""
    patterns = [f"{prefix}*.{extension}{compression}" for extension in _EXTENSIONS for compression in ("", ".gz")]
    snapshot(repository, snapshot_dir.name, patterns)
    try:
        patterns = get_data_patterns(str(snapshot_dir / data_dir))
        found, root = DataFilesList.from_local_or_remote, str(snapshot_dir / data_dir)
        splits = {str(split): found(list(paths), root) for split, paths in patterns.items()}
    except (EmptyDatasetError, FileNotFoundError):
        raise SchemaMismatchError(
            f"{repository}: readable data files not found (loading scripts are not run); "
            "list its raw files under files, or try revision: refs/convert/parquet."
        ) from None
    for split, files in list(splits.items()):
        paths = [Path(file).relative_to(snapshot_dir).as_posix() for file in files]
        splits[split] = [glob.escape(path) for path in paths if path != "eval.yaml"]  # by its name, of the split eval
        if not splits[split]:
            del splits[split]
    for split, name in (("validation", "dev"), ("test", "eval")):  # synonyms in `datasets`
        if split in splits:
            splits.setdefault(name, splits[split])
    return splits


def _split_rows(
    repository: str,
    snapshot_dir: Path,
    splits: dict,
    split: str | None,
    separator: str | None,
    config: str | None,
    source: dict,
) -> tuple[list[Row], list[str]]:
    """Return (rows, files) of one split of one configuration, downloaded unless cached."""
    label = repository + (f", configuration {config}" if config else "")
    if split is None and len(splits) == 1:
        split = next(iter(splits))
    if split not in splits:
        raise SchemaMismatchError(f'{label}: split "{split}" not found.{suggest(split or "", splits)}')
    patterns = [pattern for path in splits[split] for pattern in (path, path.replace("**/", ""))]
    snapshot(repository, snapshot_dir.name, patterns)
    try:
        files = sorted(set(DataFilesList.from_local_or_remote(splits[split], base_path=str(snapshot_dir))))
    except FileNotFoundError:
        files = []
    if not files:
        file_list = ", ".join(splits[split])
        raise SchemaMismatchError(f'{label}: files of the split "{split}" not found ({file_list}).')
    file_by_format = {source.get("format") or detect_format(file): file for file in files}
    if len(file_by_format) > 1:  # probably the same rows twice
        names = sorted(Path(file).relative_to(snapshot_dir).as_posix() for file in file_by_format.values())
        file_list = " and ".join(names)
        raise SchemaMismatchError(
            f'{label}: the split "{split}" has files of several formats ({file_list}); list those of one under files.'
        )
    rows, file_names = [], []
    for file in files:
        file_name = Path(file).relative_to(snapshot_dir).as_posix()
        file_format = "tsv" if separator == "\t" and detect_format(file_name) == "csv" else source.get("format")
        rows += read_rows(file, file_format, name=f"{repository}/{file_name}", header=source.get("header"))
        file_names.append(file_name)
    return rows, file_names


def dataset_card(snapshot_dir: Path, repository: str) -> dict:
    """Return the metadata of a dataset's card, {} without one. Raises DataError if it cannot be read."""
    path = snapshot_dir / "README.md"
    if not path.is_file():
        return {}
    try:
        text = path.read_text("utf-8", "replace")
        return huggingface_hub.DatasetCard(text, ignore_metadata_errors=False).data.to_dict()
    except (ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:
        reason = getattr(error, "problem", None) or first_line(error)
        raise DataError(f"{repository}: its dataset card (README.md) cannot be read ({reason}).") from None


def _license(card: dict) -> str | None:
    license_name = card.get("license_name") or card.get("license")
    return ", ".join(map(str, license_name)) if isinstance(license_name, list) else license_name and str(license_name)
