"""One store, several writers: processes that put, look up, journal, resume and die, all on the same few keys."""

import subprocess
import sys
from pathlib import Path

import pytest
from support import store_stress
from vernacular.inference.job.store import Store
from vernacular.inference.schema import SCORES


def stress(store: Path, *, writers: int, operations: int, deadly: int, seed: int) -> int:
    """Run the writers, and as many that kill themselves as `deadly`; returns how many operations were done."""
    started = []
    for writer in range(writers + deadly):
        command = [sys.executable, store_stress.__file__, str(store), "--seed", str(seed), "--writer", str(writer)]
        command += ["--operations", str(operations)] + ["--deadly"] * (writer >= writers)
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [process.communicate()[0] for process in started]
    failures = [line for text in said for line in text.splitlines() if not line.startswith("done ")]
    assert failures == []
    assert [process.returncode for process in started[:writers]] == [0] * writers
    return sum(int(line.split()[1]) for text in said for line in text.splitlines())


def check(path: Path) -> None:
    """Every entry is complete and right; when all are put, no journal is left that a next writer cannot use."""
    store = Store(path)
    for key in store_stress.KEYS:
        journal = store.journal(key)
        assert journal.notes == []
        for batch in store_stress.BATCHES:
            assert journal.done(batch) in (None, store_stress.rows_of(key, batch))
        assert store.get(key, SCORES)[0].equals(store_stress.table_of(key))
        store.remove_journal(key)
    assert not list(path.rglob("*.part"))


def test_writers_of_one_store_do_not_fail_each_other(tmp_path):
    assert stress(tmp_path, writers=4, operations=25, deadly=2, seed=1) >= 100
    check(tmp_path)


@pytest.mark.soak
def test_writers_of_one_store_do_not_fail_each_other_for_long(tmp_path):
    done = sum(stress(tmp_path / f"{seed}", writers=6, operations=150, deadly=3, seed=seed) for seed in range(5))
    assert done >= 4500
    for seed in range(5):
        check(tmp_path / f"{seed}")
