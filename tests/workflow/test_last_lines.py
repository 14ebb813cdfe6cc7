"""The last lines of a run whose stages crash: the reasons and the logs, without shell commands, and how to resume."""

import os

import pytest
from support.workspace import Workspace, output_tail

pytestmark = [pytest.mark.usefixtures("default_signals"), pytest.mark.slow]

# a module that Python imports when it starts: it changes the import of one command
HOOK = """
import os, signal, sys

class Crash:
    def find_spec(self, name, path=None, target=None):
        if name == "vernacular.stages.{command}":
            {crash}

sys.meta_path.insert(0, Crash())
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
KILL_ALL = f"os.kill(os.getppid(), signal.SIGKILL); {KILL}"  # with the process that would report it
KILLED = "its process was terminated by SIGKILL (probable cause: out of memory)"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    evaluations = [{"task": "cola", "languages": ["gl", "en"], "limit": 4}]
    workspace = Workspace(tmp_path_factory.mktemp("crashes"), evaluations)
    (workspace.directory / "hook").mkdir()
    paths = [str(workspace.directory / "hook"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    workspace.environment = {"PYTHONPATH": os.pathsep.join(paths)}
    return workspace


def last_lines(workspace, command: str, crash: str) -> list[str]:
    hook = workspace.directory / "hook" / "sitecustomize.py"
    hook.write_text(HOOK.format(command=command, crash=crash))
    run = workspace.run()
    hook.unlink()
    assert run.returncode == 1, output_tail(run)
    assert not any(code in run.stderr for code in ("<<<", '{"', "pipefail")), output_tail(run)
    lines = run.stderr.splitlines()
    return lines[lines.index("These jobs failed:") :]


@pytest.mark.parametrize(
    ("command", "crash", "model", "reason"),
    [
        ("collect", KILL, "tiny", KILLED),
        ("compare", "raise ZeroDivisionError('no pair')", "all models", "ZeroDivisionError: no pair"),
        ("summary", KILL_ALL, "all models", KILLED),
    ],
)
def test_run_ends_with_reason_log_and_advice(workspace, command, crash, model, reason):
    assert last_lines(workspace, command, crash) == [
        "These jobs failed:",
        f"  {model}",
        f"    {command}: {reason}",
        f"      log: logs/{command}/{'tiny' if model == 'tiny' else command}.log",
        "Finished results are kept. To resume, run the same command again.",
    ]


def test_next_run_resumes_and_a_table_of_values_precedes_the_list_of_missing_results(workspace):
    workspace.config["models"]["absent"] = {"source": "./absent"}
    run = workspace.run()
    assert run.returncode == 1, output_tail(run)
    lines = run.stdout[run.stdout.index("\ntiny:\n") :].splitlines()
    assert [line.split()[:4] for line in lines[2:4]] == [
        ["task", "language", "protocol,", "shots"],
        ["CoLA", "(samples)", "en", "acceptability,"],
    ]
    assert "acceptability, 0 shots  ROC AUC" in run.stdout
    assert "(samples): a few demonstration items" in run.stdout
    assert "Without a value: 2 evaluations of 1 model; reasons: results/summary/notes.csv" in run.stdout
    assert "results are missing:\n  absent\n" in run.stderr
