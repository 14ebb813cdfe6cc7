"""Rows of a data set on the Hugging Face Hub: pinned to a commit, kept in the Hub's own cache, read without its code.

`huggingface_hub` downloads (resuming, whole files only, the token from the environment or HF_HOME) and `datasets`
says which files a configuration's splits are, by the rules it applies itself. Only those files are fetched. Loading
scripts are never run. What is in the cache is read without a network.
"""

import fnmatch
import time
from pathlib import Path

import httpx2
import huggingface_hub
from datasets.data_files import DataFilesList, EmptyDatasetError, get_data_patterns, sanitize_patterns
from datasets.utils.metadata import MetadataConfigs
from huggingface_hub import constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils._http import default_client_factory

from vernacular.data.columns import LayoutError
from vernacular.data.files import form_of, read_rows
from vernacular.errors import DataError, closest

_ENDINGS = ("csv", "tsv", "json", "jsonl", "ndjson", "parquet")
_ATTEMPTS = 3
_TIMEOUT = 60  # seconds without a byte


def fetch(source: dict) -> tuple[list[dict], list[dict], dict]:
    """(rows of `split`, rows of `few_shot`, provenance) of a `hub` source; each row knows its `_config`.

    Raises LayoutError where the set has no such configuration or split, DataError with the sentence to show where it
    cannot be had.
    """
    repository = source["hub"]
    huggingface_hub.set_client_factory(_client)
    folder = _snapshot(repository, source.get("revision"), ["README.md"])
    commit = folder.name  # the cache lays a snapshot out as …/snapshots/<commit>/
    card = _card(folder, repository)
    rows, shots, names = [], [], []
    layouts = _layouts(source, card, folder, repository, commit)
    for config, splits, options in layouts:
        for split, into in ((source.get("split"), rows), (source.get("few_shot"), shots)):
            if split is None and into is shots:
                continue
            found = _split_rows(repository, commit, folder, splits, split, options, config)
            into += [{**row, "_config": config or ""} for row in found[0]]
            names += found[1]
    provenance = {
        "kind": "hub",
        "repository": repository,
        "config": ", ".join(config for config, _, _ in layouts if config) or None,
        "split": source.get("split"),
        "few_shot": source.get("few_shot"),
        "revision": commit,
        "files": sorted(set(names)),
        "licence": _licence(card),
    }
    return rows, shots, provenance


def from_uri(file: str) -> dict | None:
    """The `hub` source that `hf://datasets/owner/name[@revision]/file` means; None for any other text."""
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


def _layouts(
    source: dict, card: dict, folder: Path, repository: str, commit: str
) -> list[tuple[str | None, dict, dict]]:
    """(configuration, patterns of files by split, its reading options) for each configuration the source asks for."""
    if "files" in source:
        return [(None, {k: [v] if isinstance(v, str) else v for k, v in source["files"].items()}, {})]
    wanted = source.get("config")
    try:
        configs = MetadataConfigs.from_dataset_card_data(card)
        default = configs.get_default_config_name() if configs else None
    except ValueError as error:
        raise DataError(
            f"{repository}: its card lists configurations that cannot be read ({str(error).split(chr(10))[0]})."
        ) from None
    if not configs:
        if wanted not in (None, "default"):
            raise LayoutError(f'{repository}: has no configuration "{wanted}" (its card lists none).')
        return [(None, _guessed(repository, commit, folder), {})]
    if wanted is None:
        wanted = default
    if wanted is None:
        raise LayoutError(f"{repository}: several configurations; name one.{closest('', configs)}")
    names = []
    for pattern in [wanted] if isinstance(wanted, str) else wanted:
        matching = fnmatch.filter(configs, pattern)
        if not matching:
            raise LayoutError(f'{repository}: has no configuration "{pattern}".{closest(pattern, configs)}')
        names += [name for name in matching if name not in names]
    return [(name, _patterns(configs[name], repository, name), configs[name]) for name in names]


def _patterns(config: dict, repository: str, name: str) -> dict[str, list[str]]:
    if not config.get("data_files"):
        raise LayoutError(f'{repository}: its card names no files for the configuration "{name}".')
    inside = (config.get("data_dir") or "").strip("/")
    return {
        str(split): [f"{inside}/{path}" if inside else path for path in paths]
        for split, paths in sanitize_patterns(config["data_files"]).items()
    }


def _guessed(repository: str, commit: str, folder: Path) -> dict[str, list[str]]:
    """Splits by the names of files and folders, as `datasets` guesses them where the card lists no configuration."""
    _snapshot(repository, commit, [f"*.{ending}{packed}" for ending in _ENDINGS for packed in ("", ".gz")])
    try:
        return {str(split): list(paths) for split, paths in get_data_patterns(str(folder)).items()}
    except (EmptyDatasetError, FileNotFoundError):
        raise LayoutError(
            f"{repository}: holds no data files that can be read (a loading script alone is not run); "
            "name its raw files under files, or try revision: refs/convert/parquet."
        ) from None


def _split_rows(
    repository, commit, folder, splits: dict, split: str | None, options: dict, config
) -> tuple[list[dict], list[str]]:
    what = repository + (f", configuration {config}" if config else "")
    if split is None and len(splits) == 1:
        split = next(iter(splits))
    if split not in splits:
        raise LayoutError(f'{what}: has no split "{split}".{closest(split or "", splits)}')
    _snapshot(repository, commit, [form for path in splits[split] for form in (path, path.replace("**/", ""))])
    try:
        files = sorted(set(DataFilesList.from_local_or_remote(splits[split], base_path=str(folder))))
    except FileNotFoundError:
        raise LayoutError(
            f'{what}: the files of the split "{split}" are not there ({", ".join(splits[split])}).'
        ) from None
    rows, names = [], []
    for file in files:
        name = Path(file).relative_to(folder).as_posix()
        form = form_of(name)
        if form == "csv" and (options.get("sep") or options.get("delimiter")) == "\t":
            form = "tsv"
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
    except ValueError as error:
        raise DataError(f"{repository}: its card (README.md) cannot be read ({str(error).splitlines()[0]}).") from None


def _licence(card: dict) -> str | None:
    licence = card.get("license_name") or card.get("license")
    return ", ".join(map(str, licence)) if isinstance(licence, list) else licence


def _client() -> httpx2.Client:
    """The Hub's own client, but one that does not wait for ever on a server that has stopped talking."""
    client = default_client_factory()
    client.timeout = httpx2.Timeout(_TIMEOUT)
    return client


def _snapshot(repository: str, revision: str | None, wanted: list[str]) -> Path:
    """Folder of the snapshot, with the `wanted` files (patterns) in it; DataError with the sentence to show."""
    page = f"{constants.ENDPOINT}/datasets/{repository}"
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return Path(
                huggingface_hub.snapshot_download(
                    repository, repo_type="dataset", revision=revision, allow_patterns=wanted
                )
            )
        except GatedRepoError:
            raise DataError(
                f"{repository}: gated. Accept its terms at {page}, then set HF_TOKEN (or run `hf auth login`)."
            ) from None
        except RevisionNotFoundError:
            raise DataError(f'{repository}: has no revision "{revision}".') from None
        except RepositoryNotFoundError:
            raise DataError(
                f"{repository}: not on the Hub, or private. Check the spelling; "
                "for a private set, set HF_TOKEN to a token that may read it."
            ) from None
        except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
            if not _may_pass(error.__cause__) or attempt == _ATTEMPTS:
                raise DataError(
                    f"{repository}: not in the local cache, and the Hub cannot be reached ({_why(error)}). "
                    "Fetch it on a machine with internet: `snakemake --until items`."
                ) from None
        except EntryNotFoundError:
            raise LayoutError(f"{repository}: has no such file ({', '.join(wanted)}).") from None
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status in (401, 403):
                raise DataError(
                    f"{repository}: the Hub refuses access ({status}). Is HF_TOKEN right, and may it read {page}?"
                ) from None
            if not _may_pass(error) or attempt == _ATTEMPTS:
                raise DataError(f"{repository}: the Hub answers {status}; try again later.") from None
        except (httpx2.TransportError, OSError) as error:
            if attempt == _ATTEMPTS:
                raise DataError(
                    f"{repository}: the download failed ({type(error).__name__}); run again to go on."
                ) from None
        except (UnicodeEncodeError, ValueError) as error:
            # the text of such an error may hold the header, and so the token
            raise DataError(
                f"{repository}: the request could not be made ({type(error).__name__}); is HF_TOKEN a token?"
            ) from None
        time.sleep(2 ** (attempt - 1))
    raise AssertionError("unreachable")


def _may_pass(error) -> bool:
    """Is this the kind of failure that goes away by itself within seconds?"""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in (408, 429, 500, 502, 503, 504)
    return isinstance(error, httpx2.TimeoutException | httpx2.RemoteProtocolError | httpx2.ReadError)


def _why(error) -> str:
    cause = error.__cause__
    if isinstance(cause, HfHubHTTPError):
        return f"it answers {cause.response.status_code}"
    if isinstance(error, OfflineModeIsEnabled) or isinstance(cause, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    return type(cause or error).__name__
