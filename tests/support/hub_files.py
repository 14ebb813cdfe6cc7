"""Files of a dataset repository, and a task file that reads them."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq


def jsonl(*rows: dict) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def parquet(*rows: dict) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), file)
    return file.getvalue()


def question(number: int, **changes) -> dict:
    row = {
        "id": f"7-{number}",
        "question_stem": f"Pregunta {number}",
        "choices": {"text": ["un", "dous", "tres", "catro"], "label": ["A", "B", "C", "D"]},
        "answerKey": "ABCD"[number % 4],
    }
    return row | changes


def task_file(
    directory,
    name: str,
    source: dict,
    *,
    columns="{id: id, question: question_stem, choices: choices, gold: answerKey, gold_format: letter}",
):
    """Write a task file with one language, gl, for a dataset in the format of OpenBookQA."""
    path = directory / f"{name}.yaml"
    path.write_text(
        f"task: {name}\ntitle: T\ncitation: C\nprotocols: [options]\nitem_type: question\ncolumns: {columns}\n"
        f"languages:\n  gl: {{source: {json.dumps(source)}}}\n"
    )
    return path
