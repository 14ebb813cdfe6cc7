"""Workflow runs with injected faults: start, observe, interrupt and resume them, and count recomputed batches."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import yaml

from support.workspace import ROOT, Workspace, output_tail

SLOWDOWN = Path(__file__).parent / "slowdown"
EVALUATIONS = [
    {"task": "cola", "languages": ["es"]},
    {"task": "openbookqa", "languages": ["gl"], "protocols": ["options"]},
    {"task": "cola", "languages": ["ca"]},
]
RESULT_FILE = "results/summary/results.csv"
STATUS_FILE = "results/inference_status/tiny/1of1.json"
# poll the first job status after 1 s instead of 40 s; use few cores per job, as locally
FAST_POLLING = ["--slurm-init-seconds-before-status-checks", "1", "--set-threads", "infer=2", "similarity=2"]


def prepare(directory: Path) -> Path:
    """Run every step before inference in `directory`."""
    directory.mkdir()
    workspace = Workspace(directory, EVALUATIONS)
    workspace.config["models"] = {"tiny": {"source": "./causal", "dtype": "float32", "max_batch_tokens": 32, "gpus": 1}}
    run = workspace.run("--until", "requests", "model", "encoder")
    assert run.returncode == 0, output_tail(run)
    return directory


class WatchedWorkspace:
    """Copy of a prepared directory in which snakemake runs as a process that can be observed and interrupted.

    Without `prepared_directory`, the directory exists.
    """

    def __init__(self, prepared_directory: Path | None, directory: Path):
        if prepared_directory is not None:
            shutil.copytree(prepared_directory, directory, copy_function=shutil.copy2, symlinks=True)
        self.directory = directory
        self.store = directory / "results" / "store"
        self.process: subprocess.Popen | None = None
        self.log_offset = 0  # length of the output of earlier runs
        self.faults: list[tuple[str, float, float]] = []  # (name, time, latest modification of a stored file)

    def use_store(self, store: Path) -> None:
        """Keep outputs in `store`, which other workspaces may share."""
        config = yaml.safe_load((self.directory / "config.yaml").read_text())
        (self.directory / "config.yaml").write_text(yaml.safe_dump({**config, "store": str(store)}, sort_keys=False))
        self.store = store

    # ----- running ---------------------------------------------------------------------------------------------------

    def start(self, *arguments: str, pause: float = 0.25) -> None:
        """Start snakemake in the background, logging to `said.txt`; wait `pause` seconds after each computed batch."""
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PAUSE": str(pause)}
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(SLOWDOWN), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        )
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        with open(self.directory / "said.txt", "a") as file:
            self.log_offset = file.tell()
            self.process = subprocess.Popen(
                command, cwd=self.directory, stdout=file, stderr=file, env=environment, start_new_session=True
            )

    def start_locally(self, *arguments: str, pause: float = 0.25) -> None:
        self.start("-c2", "--workflow-profile", str(ROOT / "profiles" / "default"), *arguments, pause=pause)

    def start_on_slurm(self, *arguments: str) -> None:
        """Start the inference job on SLURM."""
        self.start(STATUS_FILE, "--workflow-profile", str(ROOT / "profiles" / "slurm"), *FAST_POLLING, *arguments)

    def wait(self, seconds: float = 600) -> int:
        return self.process.wait(timeout=seconds)

    def finish(self, *targets: str) -> None:
        """Run plain `snakemake`, or only up to `targets`; it must succeed."""
        self.release()
        self.start_locally(*targets, pause=0)
        assert self.wait() == 0, self.output()

    # ----- observing -------------------------------------------------------------------------------------------------

    def wait_until(self, condition, description: str, seconds: float = 600) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"timed out waiting for {description}: {self.output()}"
            time.sleep(0.05)

    def hold(self, phase: str = "") -> None:
        """Make jobs pause in the middle: some outputs are journaled, some are computed but not journaled.

        With phase "loading", jobs pause while they load the model.
        """
        (self.directory / "held").unlink(missing_ok=True)
        (self.directory / "hold").write_text(phase)

    def ignore_signals(self) -> None:
        """Make held jobs ignore signals, as in the middle of a batch that takes minutes."""
        (self.directory / "deaf").touch()

    def release(self) -> None:
        (self.directory / "hold").unlink(missing_ok=True)
        (self.directory / "deaf").unlink(missing_ok=True)

    def wait_until_held(self) -> int:
        """Wait until an inference process is held; return its pid."""
        pid_file = self.directory / "held"
        self.wait_until(lambda: pid_file.exists() and pid_file.read_text(), "a held job")
        return int(pid_file.read_text())

    def wait_for_exit(self, pid: int) -> None:
        self.wait_until(lambda: not is_alive(pid), "the job to end")

    def stored_files(self) -> list[Path]:
        """Return the files of the store: finished evaluations and journal parts."""
        return [*self.finished_files(), *self.journal_parts()]

    def journal_parts(self) -> list[Path]:
        return list((self.store / "journal").glob("*/*.part"))

    def finished_files(self) -> list[Path]:
        return list((self.store / "scores").glob("*/*.parquet"))

    def output(self) -> str:
        """Return the output of the latest run."""
        return (self.directory / "said.txt").read_bytes()[self.log_offset :].decode()

    # ----- faults ----------------------------------------------------------------------------------------------------

    def inject_fault(self, fault: str, *actions, exclude: Path | None = None) -> None:
        """Apply `actions` to the held job and record the latest modification time in the store, except of `exclude`."""
        for action in actions:
            action()
        mtimes = [path.stat().st_mtime for path in self.stored_files() if path != exclude]
        self.faults.append((fault, time.time(), max(mtimes, default=0.0)))
        (self.directory / "held").unlink(missing_ok=True)

    def kill_worker(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the parent of the held inference process and wait for the latter to exit.

        The parent forwards signals, and its child exits with it.
        """
        pid = self.wait_until_held()
        os.kill(parent_of(pid), number)
        self.wait_for_exit(pid)

    def kill_snakemake(self) -> None:
        """Kill Snakemake only; its jobs continue."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    # ----- results ---------------------------------------------------------------------------------------------------

    def batches(self) -> list[tuple[float, str]]:
        """Return (time, batch) of every batch that was computed, in all runs."""
        log = self.directory / "batches.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(float(line.split()[1]), line.split()[2]) for line in lines]

    def recomputed(self) -> dict[str, int]:
        """Return the number of batches recomputed because of each fault; assert that no stored batch was recomputed."""
        first_times, counts = {}, dict.fromkeys((fault for fault, _, _ in self.faults), 0)
        for batch_time, batch in self.batches():
            if batch in first_times:
                first = first_times[batch]
                candidates = [(fault, stored) for fault, hit, stored in self.faults if first <= hit <= batch_time]
                causes = [fault for fault, stored in candidates if stored <= first + 0.1]
                assert causes, f"a stored batch was recomputed: {candidates}, {first}"
                counts[causes[0]] += 1
            first_times[batch] = batch_time
        return counts

    def tables(self) -> dict[str, str]:
        """Return the summary and per-item results as text, without timings."""
        results = self.directory / "results"
        tables = {"summary": rows(results / "summary" / "results.parquet")}
        tables["csv"] = (results / "summary" / "results.csv").read_text()
        for kind in ("scores", "tasks"):
            for path in sorted((results / "tiny" / kind).glob("*.parquet")):
                tables[f"{kind}/{path.stem}"] = rows(path)
        return tables

    def differing_tables(self, other: "WatchedWorkspace") -> list[str]:
        """Return the names of tables that are not bit-identical to those of `other`."""
        tables, other_tables = self.tables(), other.tables()
        assert sorted(tables) == sorted(other_tables)
        return [name for name in tables if tables[name] != other_tables[name]]


def rows(path: Path) -> str:
    """Return the rows of a table as text: exact floats, and NaN equal to NaN."""
    return repr(pq.read_table(path).to_pylist())


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def session_commands(leader: int) -> dict[int, str]:
    """Return the command lines of all processes of a session, by pid."""
    commands = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            command = stat.with_name("cmdline").read_bytes()
        except OSError:  # the process has exited
            continue
        if int(session) == leader and state != "Z":
            commands[int(stat.parent.name)] = command.replace(b"\0", b" ").decode()
    return commands


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def terminate(workspace: WatchedWorkspace) -> None:
    """Kill a run that a failed test left behind."""
    if workspace.process and workspace.process.poll() is None:
        os.killpg(workspace.process.pid, signal.SIGKILL)
        workspace.process.wait()


def fault_table(workspace: WatchedWorkspace, reference_run: WatchedWorkspace) -> str:
    """Return one line per fault: its name and the number of recomputed batches."""
    return "\n".join(f"{fault} | {n} of {len(reference_run.batches())}" for fault, n in workspace.recomputed().items())
