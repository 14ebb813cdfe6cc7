"""Concurrent writers of one store: put, look up, journal, resume and die; print one line per failure.

    python tests/support/store_stress.py STORE --seed 0 --writer 0 --operations 50 [--deadly]

All writers use the same few keys. The content of keys and batches is derived from their names, so that every writer knows
what the others must have written. With `--deadly` the writer kills itself (SIGKILL) at a random time drawn from the seed.
"""

import argparse
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
from vernacular.inference.job.store import Store
from vernacular.inference.schema import SCORES

KEYS = [f"{number}{'a' * 39}" for number in range(4)]
BATCHES = [f"batch{number}" for number in range(6)]
ROWS = 30


def table_of(key: str) -> pa.Table:
    """Return the rows that every writer stores under `key`."""
    rng = random.Random(key)
    empty = dict.fromkeys(SCORES.schema.names)
    rows = [
        {**empty, "request_id": f"{key}/{n}", "item_id": f"{n}", "role": "good", "logprobs": [rng.gauss(0, 9)] * 3}
        for n in range(ROWS)
    ]
    return pa.Table.from_pylist(rows, schema=SCORES.schema)


def rows_of(key: str, batch: str) -> list[dict]:
    """Return the rows that every writer journals for `batch` of `key`."""
    rng = random.Random(f"{key}/{batch}")
    return [{"logprobs": [rng.gauss(0, 9) for _ in range(50)], "flags": None} for _ in range(3)]


def look_up(store: Store, key: str) -> None:
    result = store.get(key, SCORES)
    assert result is None or result[0].equals(table_of(key)), f"{key}: stored rows differ from the rows put"


def evaluate(store: Store, key: str, rng: random.Random, *, finish: bool) -> None:
    """Resume `key` from the batches journaled by any writer, journal the rest, and put the result if `finish`."""
    journal = store.journal(key, seconds=0)
    for batch in BATCHES:
        journaled = journal.get(batch)
        assert journaled is None or journaled == rows_of(key, batch), (
            f"{key}/{batch}: rows differ from the journaled rows"
        )
        if journaled is None:
            journal.add(batch, rows_of(key, batch))
        if not finish and rng.random() < 0.3:
            return  # like a run that ends in the middle
    if finish:
        store.put(key, SCORES, table_of(key), {"counters": {"writer": os.getpid()}})
        assert store.get(key, SCORES) is not None, f"{key}: not in the store after put"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    for name in ("seed", "writer", "operations"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--deadly", action="store_true")
    args = parser.parse_args()
    rng, store = random.Random(f"{args.seed}/{args.writer}"), Store(args.store)
    if args.deadly:
        delay = rng.uniform(0.05, 0.5)
        threading.Thread(target=lambda: (time.sleep(delay), os.kill(os.getpid(), signal.SIGKILL)), daemon=True).start()
    failures = 0
    for number in range(args.operations):
        key, kind = rng.choice(KEYS), rng.choice(["look up", "evaluate", "evaluate", "stop"])
        try:
            if kind == "look up":
                look_up(store, key)
            else:
                evaluate(store, key, rng, finish=kind == "evaluate")
        except Exception as error:  # noqa: BLE001 - every failure is a finding
            failures += 1
            print(f"writer {args.writer}, operation {number} ({kind}): {type(error).__name__}: {error}", flush=True)
    print(f"done {args.operations} {failures}", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
