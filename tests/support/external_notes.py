"""Lines of a results file, and what reading one reports."""

from vernacular.comparison.external.join import join
from vernacular.core.errors import DataError

from support.external_results import by_id, item, reference, write_jsonl

TWO = {"e": reference(), "e2": reference(items=[item("q1", "Outra cousa?", ["si", "non"])])}


def told(path, references, text=None):
    """({evaluation: {item: right?}}, notes) of a file, or ({}, what the person is told); file names without folder."""
    if isinstance(text, list):
        write_jsonl(path, text)
    elif text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    try:
        tables, notes = join(path, references)
    except DataError as error:
        return {}, [line.replace(f"{path.parent}/", "") for line in str(error).splitlines()]
    found = {name: {i: row["correct"] for i, row in by_id(table).items()} for name, table in tables.items()}
    return found, [note.replace(f"{path.parent}/", "") for note in notes]


def line(item_id, correct=1, **more):
    return {"item_id": item_id, "correct": correct} | more
