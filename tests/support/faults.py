"""Places in which a run is interrupted: started, watched, hit, and run again; and what that cost."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import yaml

from support.workplace import ROOT, Workplace, said

SLOWLY = Path(__file__).parent / "slowly"
EVALUATIONS = [
    {"task": "cola", "languages": ["es"]},
    {"task": "openbookqa", "languages": ["gl"], "protocols": ["options"]},
    {"task": "cola", "languages": ["ca"]},
]
ASKED = "results/inference_status/tiny/1of1.json"
# the first look at a job is not after forty seconds; and few cores for a job, as locally
QUICKLY = ["--slurm-init-seconds-before-status-checks", "1", "--set-threads", "infer=2", "similarity=2"]


def prepare(folder: Path) -> Path:
    """Everything that comes before the model is asked."""
    folder.mkdir()
    place = Workplace(folder, EVALUATIONS)
    place.config["models"] = {"tiny": {"source": "./causal", "dtype": "float32", "max_batch_tokens": 32, "gpus": 1}}
    run = place.run("--until", "requests", "model", "encoder")
    assert run.returncode == 0, said(run)
    return folder


class Place:
    """A copy of a prepared folder, in which snakemake runs as a process that can be watched and hit."""

    def __init__(self, ready: Path, folder: Path):
        shutil.copytree(ready, folder, copy_function=shutil.copy2, symlinks=True)
        self.folder = folder
        self.store = folder / "results" / "store"
        self.process: subprocess.Popen | None = None
        self.before = 0  # length of what earlier runs said
        self.faults: list[tuple[str, float, float]] = []  # (name, when, when the last of what was kept was written)

    def share(self, store: Path) -> None:
        """Keep outputs in `store`, as other places may."""
        config = yaml.safe_load((self.folder / "config.yaml").read_text())
        (self.folder / "config.yaml").write_text(yaml.safe_dump({**config, "store": str(store)}, sort_keys=False))
        self.store = store

    # ----- running ---------------------------------------------------------------------------------------------------

    def start(self, *arguments: str, pause: float = 0.25) -> None:
        """snakemake in the background, writing to `said.txt`; `pause` seconds after each batch that is answered."""
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PAUSE": str(pause)}
        environment["PYTHONPATH"] = os.pathsep.join([str(SLOWLY), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        with open(self.folder / "said.txt", "a") as file:
            self.before = file.tell()
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdout=file, stderr=file, env=environment, start_new_session=True
            )

    def start_locally(self, *arguments: str, pause: float = 0.25) -> None:
        self.start("-c2", "--workflow-profile", str(ROOT / "profiles" / "default"), *arguments, pause=pause)

    def start_on_slurm(self, *arguments: str) -> None:
        """The job that asks the model, on SLURM."""
        self.start(ASKED, "--workflow-profile", str(ROOT / "profiles" / "slurm"), *QUICKLY, *arguments)

    def wait(self, seconds: float = 600) -> int:
        return self.process.wait(timeout=seconds)

    def finish(self) -> None:
        """A plain `snakemake`, which must succeed."""
        self.let_go()
        self.start_locally(pause=0)
        assert self.wait() == 0, self.said()

    # ----- watching --------------------------------------------------------------------------------------------------

    def until(self, true, what: str, seconds: float = 600) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, f"waited in vain for {what}: {self.said()}"
            time.sleep(0.05)

    def hold(self, phase: str = "") -> None:
        """From now on a job stops in the middle: something is written down, something is answered and is not.

        With phase "loading", while it loads the model.
        """
        (self.folder / "held").unlink(missing_ok=True)
        (self.folder / "hold").write_text(phase)

    def deafen(self) -> None:
        """A job that is held heeds no signal: as one in the middle of a batch that takes minutes."""
        (self.folder / "deaf").touch()

    def let_go(self) -> None:
        (self.folder / "hold").unlink(missing_ok=True)
        (self.folder / "deaf").unlink(missing_ok=True)

    def until_held(self) -> int:
        """The pid of the python that asks the model and is in the middle of it."""
        held = self.folder / "held"
        self.until(lambda: held.exists() and held.read_text(), "a job in the middle")
        return int(held.read_text())

    def until_it_has_ended(self, pid: int) -> None:
        self.until(lambda: not alive(pid), "the job to end")

    def kept(self) -> list[Path]:
        """What the store holds: finished evaluations, and parts of the journal."""
        return [*self.finished(), *self.parts()]

    def parts(self) -> list[Path]:
        return list((self.store / "journal").glob("*/*.part"))

    def finished(self) -> list[Path]:
        return list((self.store / "scores").glob("*/*.parquet"))

    def said(self) -> str:
        """What the latest run said."""
        return (self.folder / "said.txt").read_bytes()[self.before :].decode()

    # ----- hitting ---------------------------------------------------------------------------------------------------

    def hit(self, fault: str, *how, but: Path | None = None) -> None:
        """Do it, to a job that is held, and remember when the last of what the store then holds was written.

        `but` for one part.
        """
        for each in how:
            each()
        kept = [path.stat().st_mtime for path in self.kept() if path != but]
        self.faults.append((fault, time.time(), max(kept, default=0.0)))
        (self.folder / "held").unlink(missing_ok=True)

    def kill_worker(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the job that computes outputs, and wait for its end: the parent of the process that does it.

        A parent passes signals on, and its child ends with it.
        """
        pid = self.until_held()
        os.kill(parent_of(pid), number)
        self.until_it_has_ended(pid)

    def kill_snakemake(self) -> None:
        """Snakemake alone: what it started lives on."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    # ----- what it cost ----------------------------------------------------------------------------------------------

    def batches(self) -> list[tuple[float, str]]:
        """(time, batch) of every answer the model gave, in all runs."""
        log = self.folder / "batches.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(float(line.split()[1]), line.split()[2]) for line in lines]

    def redone(self) -> dict[str, int]:
        """Fault -> how many batches were answered again because of it: none that was answered before its last part."""
        first, cost = {}, dict.fromkeys((fault for fault, _, _ in self.faults), 0)
        for when, batch in self.batches():
            if batch in first:
                between = [(fault, kept) for fault, hit, kept in self.faults if first[batch] <= hit <= when]
                guilty = [fault for fault, kept in between if kept <= first[batch] + 0.1]
                assert guilty, f"a batch was asked again that had been kept: {between}, {first[batch]}"
                cost[guilty[0]] += 1
            first[batch] = when
        return cost

    def tables(self) -> dict[str, str]:
        """Everything a person reads, but for timings: the summary and the per-item results."""
        results = self.folder / "results"
        tables = {"summary": rows(results / "summary" / "results.parquet")}
        tables["csv"] = (results / "summary" / "results.csv").read_text()
        for kind in ("scores", "tasks"):
            for path in sorted((results / "tiny" / kind).glob("*.parquet")):
                tables[f"{kind}/{path.stem}"] = rows(path)
        return tables

    def differs_from(self, other: "Place") -> list[str]:
        """The tables that are not the other's bit for bit."""
        ours, theirs = self.tables(), other.tables()
        assert sorted(ours) == sorted(theirs)
        return [name for name in ours if ours[name] != theirs[name]]


def rows(path: Path) -> str:
    """A table's rows as text: floats to the last bit, and NaN like NaN."""
    return repr(pq.read_table(path).to_pylist())


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent_of(pid: int) -> int:
    """The pid of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def session(leader: int) -> dict[int, str]:
    """The command lines of all processes of a session, by pid."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
            command = stat.with_name("cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if int(of) == leader and state != "Z":
            found[int(stat.parent.name)] = command.replace(b"\0", b" ").decode()
    return found


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def end(place: Place) -> None:
    """End what a test that failed has left running."""
    if place.process and place.process.poll() is None:
        os.killpg(place.process.pid, signal.SIGKILL)
        place.process.wait()


def table(place: Place, whole: Place) -> str:
    """fault, batches asked again, of how many."""
    return "\n".join(f"{fault} | {n} of {len(whole.batches())}" for fault, n in place.redone().items())
