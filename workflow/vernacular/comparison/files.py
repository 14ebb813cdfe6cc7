"""Which files results made elsewhere are: looked up when the config is read, and when they are joined."""

from pathlib import Path

from vernacular.core.errors import DataError
from vernacular.core.validate import shown


def files_in(path: Path) -> list[Path]:
    """The files of results at `path`; raises DataError where there are none."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{shown(path)}: there is no such file or folder.")
    parquet = sorted((path / "tasks").glob("*.parquet")) or sorted(path.glob("*.parquet"))
    samples = sorted(path.rglob("samples_*.jsonl"))
    others = [each for pattern in ("*.csv", "*.tsv", "*.jsonl") for each in sorted(path.glob(pattern))]
    kinds = [files for files in (parquet, samples, [each for each in others if each not in samples]) if files]
    if not kinds:
        raise DataError(f"{shown(path)}: no results in this folder (.parquet, samples_*.jsonl, .csv, .tsv, .jsonl).")
    if len(kinds) > 1:
        names = " and ".join(files[0].name for files in kinds)
        raise DataError(f"{shown(path)}: holds results of several kinds ({names}); name a file, or put them apart.")
    return kinds[0]
