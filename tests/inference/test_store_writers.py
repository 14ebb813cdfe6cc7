"""Concurrent writers of one store: processes that put, look up, journal, resume and die on the same keys."""

import subprocess
import sys
from pathlib import Path

import pytest
from support import store_stress
from vernacular.inference.job.store import Store
from vernacular.inference.schema import SCORES


def run_writers(store: Path, *, writers: int, operations: int, n_killed: int, seed: int) -> int:
    """Run `writers` processes and `n_killed` that kill themselves; return the number of completed operations."""
    processes = []
    for writer in range(writers + n_killed):
        command = [sys.executable, store_stress.__file__, str(store), "--seed", str(seed), "--writer", str(writer)]
        command += ["--operations", str(operations)] + ["--deadly"] * (writer >= writers)
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [process.communicate()[0] for process in processes]
    failures = [line for output in outputs for line in output.splitlines() if not line.startswith("done ")]
    assert failures == []
    assert [process.returncode for process in processes[:writers]] == [0] * writers
    return sum(int(line.split()[1]) for output in outputs for line in output.splitlines())


def check_store(path: Path) -> None:
    """Check that every entry is complete and correct and that every journal is usable."""
    store = Store(path)
    for key in store_stress.KEYS:
        journal = store.journal(key)
        assert journal.notes == []
        for batch in store_stress.BATCHES:
            assert journal.get(batch) in (None, store_stress.rows_of(key, batch))
        assert store.get(key, SCORES)[0].equals(store_stress.table_of(key))
        store.remove_journal(key)
    assert not list(path.rglob("*.part"))


@pytest.mark.slow
def test_concurrent_writers(tmp_path):
    assert run_writers(tmp_path, writers=4, operations=25, n_killed=2, seed=1) >= 100
    check_store(tmp_path)


@pytest.mark.soak
def test_concurrent_writers_soak(tmp_path):
    n_operations = sum(
        run_writers(tmp_path / f"{seed}", writers=6, operations=150, n_killed=3, seed=seed) for seed in range(5)
    )
    assert n_operations >= 4500
    for seed in range(5):
        check_store(tmp_path / f"{seed}")
