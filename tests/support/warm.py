"""An interpreter for runs of Snakemake that does not import their libraries again, which is most of what a run costs.

`directory()` has an executable `python` that a run finds on its PATH. It asks a server, a process in which the libraries
are imported, but not the package, to fork: the fork runs the same file with the same arguments, directory, files and
variables as a process of its own. Where that is not what the interpreter itself would do, the interpreter runs: if a
variable differs that a library may read when it is imported, for coverage, or on systems without a safe fork.

Runs that are killed from outside, or use other variables, have processes of their own: `support.faults` and others.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
from pathlib import Path

LIBRARIES = [
    *("snakemake.cli", "snakemake.executors.local", "pandas", "pyarrow.parquet", "pyarrow.compute", "openpyxl"),
    *("jsonschema", "scipy.stats", "jinja2.sandbox", "ruamel.yaml", "torch", "tokenizers", "safetensors.torch"),
    *("transformers.models.llama.modeling_llama", "transformers.models.gpt2.modeling_gpt2", "transformers.pipelines"),
    *("transformers.models.bert.modeling_bert", "transformers.models.auto.modeling_auto", "bert_score", "ot", "peft"),
    *("transformers.generation.utils", "transformers.models.auto.tokenization_auto", "huggingface_hub.hf_api"),
]
# variables that no library reads when it is imported, or that Snakemake sets; BIG_KEY is that of the tests' servers
OWN = (
    "PATH",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "PS1",
    "TMP",
    "TMPDIR",
    "TEMP",
    "TEMPDIR",
    "PYTEST_CURRENT_TEST",
    "BIG_KEY",
)
LIBRARY_OWN = ("VERNACULAR", "KMP_", "TORCHINDUCTOR_")  # prefixes; libraries set the others

# compares variables, sends its files, and waits as if it were the process; anything unexpected: the real interpreter
CLIENT = """#!{python} -IS
import os, signal, socket, sys
def real():
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
if not sys.argv[1:2] or not (sys.argv[1].endswith("/stage.py") or sys.argv[1:3] == ["-m", "snakemake"]):
    real()
import json
server = socket.socket(socket.AF_UNIX)
try:
    server.connect({address!r})
except OSError:
    real()
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
server.sendall(request)
answers = server.makefile()
pid = int(answers.readline() or 0)
if not pid:
    real()
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
status = int(answers.readline() or 1)
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
    os.kill(os.getpid(), -status)
os._exit(status)
"""


@functools.cache
def directory() -> Path:
    """Return a directory with the executable `python`; its server ends with this process."""
    own = tempfile.TemporaryDirectory(prefix="vernacular-python-")
    address = f"{own.name}/socket"
    python = Path(own.name, "python")
    python.write_text(CLIENT.format(python=sys.executable, address=address))
    python.chmod(0o755)
    if sys.platform == "linux" and not any(name.startswith("COVERAGE") for name in os.environ):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen(64)
        server = subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno())],
            stdin=subprocess.PIPE,  # closed with this process
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            env=environment(),
        )
        listener.close()
        atexit.register(_stop, server)
    atexit.register(own.cleanup)
    return Path(own.name)


def environment() -> dict[str, str]:
    """Return the variables of a run: those of the tests, without their settings of the Hub."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HF_")}


def _stop(server: subprocess.Popen) -> None:
    server.stdin.close()
    server.wait()


def _serve(listener: socket.socket) -> list[str]:
    """Fork for each request until standard input is closed; return in the fork, with the arguments."""
    while True:
        with_input, _, _ = select.select([listener, 0], [], [], 1)
        while _reap():
            pass
        if 0 in with_input:
            os._exit(0)
        if not with_input:
            continue
        client, _ = listener.accept()
        if os.fork():
            client.close()
            continue
        listener.close()
        if (arguments := _run_in_fork(client)) is not None:
            return arguments


def _reap() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _run_in_fork(client: socket.socket) -> list[str] | None:
    """Read a request; return its arguments in a fork with its files and variables, and in this process never."""
    header, files, _, _ = socket.recv_fds(client, 8, 3)
    content, length = b"", int.from_bytes(header, "big")
    while len(content) < length:
        content += client.recv(length - len(content))
    arguments, path, variables = json.loads(content)
    if _imported(variables) != _imported(os.environ):
        os._exit(0)
    if pid := os.fork():
        client.sendall(f"{pid}\n".encode())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        client.sendall(f"{status}\n".encode())
        os._exit(0)
    client.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(path)
    sys.path = [path for path in sys.path if path not in _python_path(os.environ)]
    sys.path[1:1] = _python_path(variables)
    os.environ.clear()
    os.environ.update(variables)
    return arguments


def _python_path(variables) -> list[str]:
    return [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path]


def _imported(variables) -> dict[str, str]:
    """Return the variables that a library may read when it is imported."""
    kept = [name for name in variables if name not in OWN and not name.startswith(LIBRARY_OWN)]
    if not any(Path(path, "sitecustomize.py").exists() for path in _python_path(variables)):
        kept = [name for name in kept if name != "PYTHONPATH"]  # `_run_in_fork` adds it
    return {name: variables[name] for name in kept if not name.endswith("_THREADS")}


def _run(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv, sys.path[0] = arguments, os.path.dirname(arguments[0])
    main = types.ModuleType("__main__")
    main.__file__ = arguments[0]
    sys.modules["__main__"] = main
    exec(compile(Path(arguments[0]).read_text("utf-8"), arguments[0], "exec"), main.__dict__)


def _main() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a fork would write to, and thereby copy, the memory of all libraries
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    importlib.invalidate_caches()
    tempfile.tempdir = None  # set by a library
    status = 1  # of an exception
    # after all that the process registers, in place of the end of each library, which takes seconds
    atexit.register(lambda: (sys.stdout.flush(), sys.stderr.flush(), os._exit(status)))
    try:
        _run(arguments)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise


if __name__ == "__main__":
    _main()
