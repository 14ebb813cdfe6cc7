"""Publications that other groups may send: a valid one, damaged in a way that is drawn at random."""

import gzip
import json
import os
import random
import shutil
from pathlib import Path

from vernacular.comparison.schema import PROMPTS
from vernacular.core import artifacts
from vernacular.metrics.schema import RESULTS

from support.malformed import NAMES, NESTED, VALUES, change

_TEXTS = [b"", b"\xff\xfe{", b"null", b"[]", b"1", b'{"a":', b"\0" * 1000, b"{}\n" * 3, NESTED.encode()]


def damage(folder: Path, rng: random.Random) -> str:
    """Damage a publication, and return how."""
    kind = rng.choice([_record_value, _record_value, _line_value, _line_value, _line_order, _bytes, _place, _table])
    return kind(folder, rng)


def _records(folder: Path) -> list[Path]:
    return sorted(folder.glob("data/vernacular/*/*/*.json"))


def _lines(folder: Path) -> list[Path]:
    return sorted(folder.glob("data/vernacular/*/*/*_samples.jsonl"))


def _dump(value) -> str:
    return json.dumps(value, ensure_ascii=True)


def _record_value(folder: Path, rng: random.Random) -> str:
    file = rng.choice(_records(folder))
    record = json.loads(file.read_text("utf-8"))
    if rng.random() < 0.5:
        record["model_info"]["name"] = rng.choice([*NAMES, *VALUES])
        how = f"model {str(record['model_info']['name'])[:40]!r}"
    else:
        how = change(record, rng)
    file.write_text(_dump(record), "utf-8")
    return f"record: {how}"


def _line_value(folder: Path, rng: random.Random) -> str:
    file = rng.choice(_lines(folder))
    lines = file.read_text("utf-8").splitlines()
    number = rng.randrange(len(lines))
    line = json.loads(lines[number])
    if rng.random() < 0.3:
        line["evaluation"]["score"] = rng.choice([5.0, -1, 0.5, float("nan"), 10**400, True, "1", 1e999, None])
        how = f"score {str(line['evaluation']['score'])[:40]}"
    else:
        how = change(line, rng)
    lines[number] = _dump(line)
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return f"line: {how}"


def _line_order(folder: Path, rng: random.Random) -> str:
    """Repeat a line or a record, the second with another value."""
    if rng.random() < 0.4:
        file = rng.choice(_records(folder))
        shutil.copy(file, file.with_name(f"copy-{file.name}"))
        return "two records of a model"
    file = rng.choice(_lines(folder))
    lines = file.read_text("utf-8").splitlines()
    line = rng.choice(lines)
    if rng.random() < 0.5:
        line = line.replace('"score": 1.0', '"score": 0.0').replace('"is_correct": true', '"is_correct": false')
    file.write_text("\n".join([*lines, line]) + "\n", "utf-8")
    return "two lines of an item and a metric"


def _bytes(folder: Path, rng: random.Random) -> str:
    """Replace the content of a file, or a part of it."""
    file = rng.choice([*_records(folder), *_lines(folder), *sorted(folder.glob("tables/*.parquet"))])
    content = file.read_bytes()
    position = rng.randrange(len(content))
    how = rng.choice(["text", "cut", "flip", "gzip", "BOM", "NaN", "keys", "UTF-16", "CRLF", "long line"])
    file.write_bytes({
        "text": lambda: rng.choice(_TEXTS),
        "cut": lambda: content[:position],
        "flip": lambda: content[:position] + bytes([content[position] ^ (1 << rng.randrange(8))]) + content[position + 1 :],
        "gzip": lambda: gzip.compress(content),
        "BOM": lambda: b"\xef\xbb\xbf" + content,
        "NaN": lambda: content.replace(b"1.0", rng.choice([b"NaN", b"-Infinity", b"1e999", b"9" * 5000]), 1),
        "keys": lambda: content.replace(b"{", b'{"evaluation_name": "other", "model_info": {"name": "y"}, ', 1),
        "UTF-16": lambda: content.decode("utf-8", "replace").encode("utf-16"),
        "CRLF": lambda: content.replace(b"\n", b"\r\n"),
        "long line": lambda: content.replace(b"\n", b" "),
    }[how]())  # fmt: skip
    return f"{file.suffix} {how}"


def _place(folder: Path, rng: random.Random) -> str:
    """Put something else in the place of a file."""
    file = rng.choice([*_records(folder), *_lines(folder), *sorted(folder.glob("tables/*.parquet"))])
    how = rng.choice(["missing", "directory", "pipe", "device", "loop", "dangling", "outside", "unreadable"])
    outside = folder.parent.parent / "secret.json"
    outside.write_bytes(file.read_bytes())
    file.unlink()
    if how == "directory":
        file.mkdir()
    elif how == "pipe":
        os.mkfifo(file)
    elif how == "unreadable":
        file.touch(mode=0o000)
    elif how != "missing":
        targets = {"device": "/dev/zero", "loop": file.name, "dangling": "nothing", "outside": outside}
        file.symlink_to(targets[how])
    return f"{file.suffix} {how}"


def _table(folder: Path, rng: random.Random) -> str:
    """Change a cell of a table; the file is sealed as one of Vernacular."""
    kind = rng.choice([RESULTS, RESULTS, RESULTS, PROMPTS])
    path = folder / "tables" / f"{kind.name}.parquet"
    rows = artifacts.read(path, kind, allow_moved=True).to_pylist()
    if not rows:
        kind, path = RESULTS, folder / "tables" / "results.parquet"
        rows = artifacts.read(path, kind, allow_moved=True).to_pylist()
    row = rng.choice(rows)
    column = rng.choice(kind.schema.names)
    values = {
        "string": [None, *(name for name in NAMES if "\ud800" not in name)],
        "bool": [None],
        "int32": [None, -1, 5, 2**31 - 1],
        "int64": [None, -1, 5, 2**63 - 1],
        "double": [None, 5.0, -1e300, float("nan"), float("inf")],
    }
    row[column] = rng.choice(values.get(str(kind.schema.field(column).type), [None, [], [None]]))
    how = f"{column} = {str(row[column])[:40]!r}"
    if rng.random() < 0.15:
        rows.append(dict(row))
        how += ", twice"
    path.unlink()
    try:
        artifacts.write(path, kind, rows, rng.choice([{"fingerprint": "x"}, {"models": None}, {"models": [1]}]))
    except artifacts.ArtifactError:  # the schema does not permit it
        path.write_bytes(b"PAR1")
    return f"{kind.name}: {how}"
