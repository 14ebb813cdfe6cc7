"""The small run of `report_run` with a list of items to read, and a list that is refused."""

from dataclasses import asdict
from pathlib import Path

from vernacular.comparison.audit import Listing
from vernacular.comparison.schema import AUDIT_LIST

from support import report_run
from support.report_run import HOSTILE, OPTIONS, write_artifact

OTHER = "cola.ar.acceptability.0shot"
SENTENCE = "Items on this list are hard or faulty. Removing them raises every score."


def _row(number: int, **columns) -> dict:
    texts = {
        "prompt": HOSTILE.get(f"i{number}", f"Pregunta {number}"),
        "choices": ["dereita", "trabucada"],
        "gold": [0],
    }
    values = {"score": 3.0 - number / 10, "level": -0.5, "slope": 0.1, "families": 2, "families_wrong": 2}
    about = {
        "favorite": "trabucada",
        "favorite_share": 0.9,
        "reason": "2 of 2 families do not choose the gold",
        "checks": "",
    }
    place = {"evaluation": OPTIONS, "task": "olas", "language": "gl", "rank": number, "drop_rank": 4 - number}
    compared = {
        "drop": number / 10,
        "q": 0.5,
        "accuracy_here": 0.2,
        "accuracy_elsewhere": 0.8,
        "reference_language": "en",
    }
    compared |= {"reference": f"Question {number}", "item_id": f"i{number}", "content": f"c{number}"}
    return dict.fromkeys(AUDIT_LIST.schema.names) | texts | values | about | place | compared | columns


def write_run(root: Path) -> dict:
    """Write the run's artifacts below `root`; return the arguments of `page.build` except `out`."""
    arguments = report_run.write_run(root)
    listing = Listing(OPTIONS, "olas", "gl", [OPTIONS], None, 260, 3, 3, 2, 0.4, 0.7, 0.5, 0.2, 0.4, [SENTENCE])
    refused = Listing(OTHER, "cola", "ar", [OTHER], "no audit list: expected at least 100 items.")
    rows = [_row(1, checks='damage (odd number of ")'), _row(2), _row(3, prompt=HOSTILE["i3"])]
    metadata = {"lists": [asdict(listing), asdict(refused)]}
    write_artifact(root / "results" / "summary" / "audit.parquet", AUDIT_LIST, rows, metadata)
    return arguments | {"audit": True}
