"""Rows of a dataset on the Hugging Face Hub: pinned to a commit, stored in the Hub's cache, read without its code.

`datasets` determines the files of each split of a configuration by its own rules; only these are downloaded, and
loading scripts are never run.
"""

import fnmatch
import glob
from functools import partial
from pathlib import Path

import huggingface_hub
import yaml
from datasets.data_files import DataFilesList, EmptyDatasetError, get_data_patterns, sanitize_patterns
from datasets.utils.metadata import MetadataConfigs

from vernacular.core.errors import DataError, closest, first_line
from vernacular.core.hub_snapshot import snapshot as any_snapshot
from vernacular.data.columns import LayoutError
from vernacular.data.readers import form_of, read_rows

snapshot = partial(any_snapshot, repo_type="dataset", complaint=DataError, absent=LayoutError)

_ENDINGS = ("csv", "tsv", "json", "jsonl", "ndjson", "parquet")


def fetch(source: dict) -> tuple[list[dict], list[dict], dict]:
    """Return (rows of `split`, rows of `few_shot`, provenance) of a `hub` source; each row has its `_config`.

    Raises:
        LayoutError: The dataset does not have the configuration, split or files.
        DataError: The dataset is unavailable or unreadable.
    """
    repository = source["hub"]
    # not every repository has a card, but every one has .gitattributes
    folder = snapshot(repository, source.get("revision"), ["README.md", ".gitattributes"])
    card = _card(folder, repository)
    layouts = _layouts(source, card, folder, repository)
    rows, shots, names = [], [], set()
    for config, splits, separator in layouts:
        for split, into in ((source.get("split"), rows), (source.get("few_shot"), shots)):
            if split is None and into is shots:
                continue
            found, files = _split_rows(repository, folder, splits, split, separator, config)
            into += [{**row, "_config": config or ""} for row in found]
            names.update(files)
    provenance = {
        "kind": "hub",
        "repository": repository,
        "config": ", ".join(config for config, _, _ in layouts if config) or None,
        "split": source.get("split"),
        "few_shot": source.get("few_shot"),
        "revision": folder.name,  # the cache stores a snapshot in …/snapshots/<commit>/
        "files": sorted(names),
        "license": _licence(card),
    }
    return rows, shots, provenance


def from_uri(file: str) -> dict | None:
    """Return the `hub` source of `hf://datasets/owner/name[@revision]/file`; None for any other text."""
    prefix = "hf://datasets/"
    if not file.startswith(prefix):
        return None
    owner, name, path = [*file.removeprefix(prefix).split("/", 2), "", ""][:3]
    if not (owner and name and path):
        raise DataError(f"{file}: expected hf://datasets/owner/name/file.")
    name, _, revision = name.partition("@")
    return {"hub": f"{owner}/{name}", "files": {"data": path}, "split": "data"} | (
        {"revision": revision} if revision else {}
    )


def _layouts(source: dict, card: dict, folder: Path, repository: str) -> list[tuple[str | None, dict, str | None]]:
    """Return (configuration, file patterns by split, column separator) for each configuration of the source."""
    if "files" in source:
        files = {k: [v] if isinstance(v, str) else v for k, v in source["files"].items()}
        return [(None, _inside(files, repository), None)]
    wanted = source.get("config")
    try:
        configs = MetadataConfigs.from_dataset_card_data(card)
        default = configs.get_default_config_name() if configs else None
        if odd := [name for name in configs if not isinstance(name, str)]:
            raise ValueError(f"{odd[0]} is not text; put numbers in quotes")
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise DataError(
            f"{repository}: the configurations in its dataset card cannot be read ({first_line(error)})."
        ) from None
    if not configs:
        if wanted not in (None, "default", ["*"]):
            raise LayoutError(f'{repository}: configuration "{wanted}" not found (its dataset card lists none).')
        return [(None, _guessed(repository, folder), None)]
    if wanted is None and default is None:
        raise LayoutError(f"{repository}: has several configurations; set config.{closest('', configs)}")
    names = []
    for pattern in [wanted or default] if isinstance(wanted or default, str) else wanted:
        matching = fnmatch.filter(configs, pattern)
        if not matching:
            raise LayoutError(f'{repository}: configuration "{pattern}" not found.{closest(pattern, configs)}')
        names += [name for name in matching if name not in names]
    return [(name, _patterns(configs[name], repository, folder), _separator(configs[name])) for name in names]


def _patterns(config: dict, repository: str, folder: Path) -> dict[str, list[str]]:
    inside = str(config.get("data_dir") or "").strip("/")
    _inside({"data_dir": [inside]}, repository)
    if not config.get("data_files"):
        return _guessed(repository, folder, inside)
    splits = sanitize_patterns(config["data_files"])
    found = {str(split): [f"{inside}/{path}" if inside else path for path in paths] for split, paths in splits.items()}
    return _inside(found, repository)


def _inside(splits: dict[str, list[str]], repository: str) -> dict[str, list[str]]:
    """Return `splits`; raise DataError for a file outside the repository: a card may name any local file or URL."""
    for path in (path for paths in splits.values() for path in paths):
        if not isinstance(path, str) or "://" in path or path.startswith(("/", "~")) or ".." in path.split("/"):
            raise DataError(
                f"{repository}: lists a file outside of the repository ({path}); use a separate source for it."
            )
    return splits


def _separator(config: dict) -> str | None:
    return config.get("sep") or config.get("delimiter")


def _guessed(repository: str, folder: Path, inside: str = "") -> dict[str, list[str]]:
    """Return files by split, inferred from file and directory names, as `datasets` does if the card lists no files."""
    before = f"{inside}/" if inside else ""
    snapshot(repository, folder.name, [f"{before}*.{ending}{packed}" for ending in _ENDINGS for packed in ("", ".gz")])
    try:
        found = get_data_patterns(str(folder / inside))
        splits = {
            str(split): DataFilesList.from_local_or_remote(list(p), str(folder / inside)) for split, p in found.items()
        }
    except (EmptyDatasetError, FileNotFoundError):
        raise LayoutError(
            f"{repository}: readable data files not found (loading scripts are not run); "
            "list its raw files under files, or try revision: refs/convert/parquet."
        ) from None
    splits = {
        split: [glob.escape(Path(file).relative_to(folder).as_posix()) for file in files]
        for split, files in splits.items()
    }
    for split, name in (("validation", "dev"), ("test", "eval")):  # synonyms in `datasets`
        if split in splits:
            splits.setdefault(name, splits[split])
    return splits


def _split_rows(
    repository: str, folder: Path, splits: dict, split: str | None, separator: str | None, config: str | None
) -> tuple[list[dict], list[str]]:
    """Return (rows, files) of one split of one configuration, downloaded unless cached."""
    what = repository + (f", configuration {config}" if config else "")
    if split is None and len(splits) == 1:
        split = next(iter(splits))
    if split not in splits:
        raise LayoutError(f'{what}: split "{split}" not found.{closest(split or "", splits)}')
    snapshot(repository, folder.name, [form for path in splits[split] for form in (path, path.replace("**/", ""))])
    try:
        files = sorted(set(DataFilesList.from_local_or_remote(splits[split], base_path=str(folder))))
    except FileNotFoundError:
        files = []
    if not files:
        listed = ", ".join(splits[split])
        raise LayoutError(f'{what}: files of the split "{split}" not found ({listed}).')
    one_of = {form_of(file): file for file in files}
    if len(one_of) > 1:  # probably the same rows twice
        listed = " and ".join(sorted(Path(file).relative_to(folder).as_posix() for file in one_of.values()))
        raise LayoutError(
            f'{what}: the split "{split}" has files of several formats ({listed}); list those of one under files.'
        )
    rows, names = [], []
    for file in files:
        name = Path(file).relative_to(folder).as_posix()
        form = "tsv" if separator == "\t" and form_of(name) == "csv" else None
        rows += read_rows(file, form, name=f"{repository}/{name}")
        names.append(name)
    return rows, names


def _card(folder: Path, repository: str) -> dict:
    path = folder / "README.md"
    if not path.is_file():
        return {}
    try:
        return huggingface_hub.DatasetCard(
            path.read_text("utf-8", "replace"), ignore_metadata_errors=False
        ).data.to_dict()
    except (ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:
        reason = getattr(error, "problem", None) or first_line(error)
        raise DataError(f"{repository}: its dataset card (README.md) cannot be read ({reason}).") from None


def _licence(card: dict) -> str | None:
    license = card.get("license_name") or card.get("license")
    return ", ".join(map(str, license)) if isinstance(license, list) else license and str(license)
