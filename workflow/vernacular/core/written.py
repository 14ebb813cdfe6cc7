"""Directories in which a run replaces the files that it wrote, and keeps all others.

Snakemake empties an output `directory()` before its job, with everything that a user has put there. The rules declare a
file in the directory instead, which is written last, and the files are replaced here: new ones are written aside,
listed in `.vernacular`, and renamed; then those are removed that an earlier run has listed and this one did not write.
A run that is killed at any point leaves only listed files. Symbolic links inside the directory are never followed.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, UserError, format_count, writing
from vernacular.core.fingerprint import file_fingerprint
from vernacular.core.paths import WORKFLOW, display_path

COMPLETE = ".vernacular-complete"  # the hashes of the files, written last; what the rules declare
_LIST = ".vernacular"
_NEW = ".vernacular-new"  # directory of the files of a command that is running, or was killed
# written by operating systems and network file systems without the user's knowledge
_IGNORED = re.compile(r"\.DS_Store|Thumbs\.db|desktop\.ini|\.nfs\w+")
# by Snakemake in an output directory, and by `replacing` of an earlier version in a run that was killed
_TEMPORARY = re.compile(r"\.snakemake_timestamp|\..+\.\d+\.[0-9a-f]{16}\.tmp")
_MAX_NAMES = 3  # of files in a message


@contextlib.contextmanager
def rewriting(directory: Path, kind: str) -> Iterator[Path]:
    """Yield an empty directory; on success its files replace those that earlier runs wrote to `directory`.

    `kind`: as in `_EARLIER`. Raises UserError if a foreign file has the name of a new one, and WriteError.
    """
    new = Path(directory, _NEW)
    with writing(new):
        _remove(new)
        new.mkdir(parents=True)
        try:
            yield new
            _replace(Path(directory), new, kind)
        finally:
            _remove(new)
            with contextlib.suppress(OSError):
                os.rmdir(directory)  # created here, and nothing was written


def foreign_files(directory: Path, kind: str) -> list[str]:
    """Return the relative paths of the files in a directory, and of symbolic links, that no run has written, sorted."""
    entries = _entries(directory)
    return sorted(entries.keys() - _written(directory, kind, entries))


def named_files(directory: Path, paths: list[str]) -> str:
    """Return the first of some paths in a directory, for a message, and the number of the others."""
    names = ", ".join(display_path(Path(directory, path)) for path in paths[:_MAX_NAMES])
    more = len(paths) - _MAX_NAMES
    return names + (f" and {format_count(more, 'other file')}" if more > 0 else "")


def _replace(directory: Path, new: Path, kind: str) -> None:
    """Move the files of `new` to `directory`, and remove what an earlier run has written there and this one did not."""
    hashes = {path: file_fingerprint(new / path) for path in sorted(_entries(new))}
    entries = _entries(directory)
    written = _written(directory, kind, entries)
    foreign = entries.keys() - written
    taken = [path for path in hashes if foreign & {path, *_parents(path)} or (directory / path).is_dir()]
    if taken:
        names = named_files(directory, taken)
        raise UserError(f"{names}: expected a file that a run wrote, or none. Move it to another directory.")
    _write_list(directory, written | hashes.keys())
    for path in hashes:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        os.replace(new / path, directory / path)
    for path in sorted(written - hashes.keys()):
        (directory / path).unlink(missing_ok=True)
        for parent in _parents(path):
            with contextlib.suppress(OSError):  # other files are in it
                (directory / parent).rmdir()
    _write_list(directory, hashes)
    artifacts.write_text(directory / COMPLETE, "".join(f"{sha256}  {path}\n" for path, sha256 in hashes.items()))


def _write_list(directory: Path, paths) -> None:
    note = "Files in this directory that Vernacular wrote. The next run replaces them, and no others."
    artifacts.write_text(directory / _LIST, json.dumps({"note": note, "files": sorted(paths)}, indent=0))


def _remove(new: Path) -> None:
    if new.is_symlink():
        new.unlink()
    shutil.rmtree(new, ignore_errors=True)


def _parents(path: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(path).parents[:-1]]


def _entries(directory: Path, prefix: str = "") -> dict[str, bool]:
    """Return the relative path of every file, and whether it is a regular one; links to directories are files."""
    found = {}
    try:
        with os.scandir(Path(directory, prefix)) as entries:
            for entry in entries:
                path = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if path != _NEW:
                        found |= _entries(directory, f"{path}/")
                elif path not in (_LIST, COMPLETE) and not _IGNORED.fullmatch(entry.name):
                    found[path] = entry.is_file(follow_symlinks=False)
    except FileNotFoundError:
        pass
    except (NotADirectoryError, PermissionError):
        found[prefix] = False
    return found


def _written(directory: Path, kind: str, entries: dict[str, bool]) -> set[str]:
    """Return which of the files in a directory a run has written: those in its list, of which nothing else is read."""
    files = {path for path, is_regular in entries.items() if is_regular}
    try:
        listed = set(json.loads(Path(directory, _LIST).read_bytes())["files"])
    except (OSError, ValueError, KeyError, TypeError):  # written by an earlier version, or copied without the list
        listed = {path for path in files if _EARLIER[kind](Path(directory), path)} if files else set()
    return {path for path in files if path in listed or _TEMPORARY.fullmatch(PurePosixPath(path).name)}


# Files of versions that wrote no list, by kind: patterns of their paths, and of what is in the file or one beside it


def _is_report_file(directory: Path, path: str) -> bool:
    if path.startswith("data/"):
        return path.endswith(".js") and _contains(directory / path, rb'^vernacular\.piece\("')
    script = directory / "js" / "core.js"
    return Path(WORKFLOW, "report", path).is_file() and _contains(script, b"\nconst vernacular = ")


def _is_comparison_file(directory: Path, path: str) -> bool:
    if re.fullmatch(r"[^/]+--[^/]+/[^/]+\.cloze\.[^/]+\.json", path):
        return True
    if not re.fullmatch(r"[^/]+--[^/]+/changes\.(parquet|csv)", path):
        return False
    try:
        return artifacts.metadata((directory / path).with_suffix(".parquet"), allow_moved=True)["kind"] == "changes"
    except ArtifactError:
        return False


def _is_export_file(directory: Path, path: str) -> bool:
    names = r"README\.txt|predictions\.csv|scores\.txt|outputs_log\.csv|results(_legacy)?\.jsonl"
    tools = rb"^(Files|Result lines|Evaluation tables) in the (format|layout) of (the PalmX|the Serbian|Grew-TSE)"
    is_named = re.fullmatch(rf"{names}|evaluation(_sentence)?\.csv", path)
    return bool(is_named) and _contains(directory / "README.txt", tools)


def _is_named_file(names: str, text: bytes, directory: Path, path: str) -> bool:
    return bool(re.fullmatch(names, path)) and _contains(directory / path, text)


def _contains(path: Path, pattern: bytes) -> bool:
    try:
        return bool(re.search(pattern, path.read_bytes()))
    except OSError:
        return False


_EARLIER = {
    "report": _is_report_file,
    "comparisons": _is_comparison_file,
    "exports": _is_export_file,
    "lm_eval": partial(_is_named_file, r"results_[^/]*\.json", b'"model": "vernacular"'),
    "every_eval_ever": partial(
        _is_named_file, r"data/vernacular/[^/]+/[^/]+/[0-9a-f-]{36}\.json", b'"name": "vernacular"'
    ),
}
