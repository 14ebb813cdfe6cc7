"""A real vLLM server on 127.0.0.1, of the Python in VLLM_PYTHON, or of this one if it has vLLM."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

from support.optional import package_problem

PYTHON = os.environ.get("VLLM_PYTHON") or (None if package_problem("vllm") else sys.executable)
_SECONDS = 600  # until it answers


class VLLMServer:
    """A running server of a model's directory, in float32; `source` is its address."""

    name = "served"

    def __init__(self, directory, *options: str):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(directory), "--host", "127.0.0.1"]
        command += ["--port", str(port), "--served-model-name", self.name, "--dtype", "float32", "--enforce-eager"]
        environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
        self.process = subprocess.Popen(
            [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
            start_new_session=True,
        )  # fmt: skip
        self.source = f"http://127.0.0.1:{port}/v1"
        deadline = time.monotonic() + _SECONDS
        while not self._answers(port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"the vLLM server does not answer; its status is {self.process.returncode}")
            time.sleep(0.5)

    def _answers(self, port: int) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with contextlib.suppress(OSError), opener.open(f"http://127.0.0.1:{port}/version", timeout=5):
            return True
        return False

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
