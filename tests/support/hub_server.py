"""A small Hugging Face Hub on 127.0.0.1: datasets and models, commits, files, access control, and network failures.

It implements the part of the Hub's HTTP API that `huggingface_hub` uses for downloads, so that the real client runs against
it (HF_ENDPOINT). `Client` runs it in a separate Python process, because HF_ENDPOINT is read at import.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Repository:
    """A repository: every `push` is a commit; private and gated repositories require the token."""

    def __init__(self, files: dict, *, private: bool = False, gated: bool = False):
        self.private, self.gated = private, gated
        self.commits: dict[str, dict[str, bytes]] = {}
        self.refs: dict[str, str] = {}
        self.push(files)

    def push(self, files: dict, branch: str = "main") -> str:
        """Commit `files` (path: bytes, text or file on disk) to `branch`; return the commit."""
        files = {path: content.encode() if isinstance(content, str) else content for path, content in files.items()}
        names = "".join(
            f"{path} {hashlib.sha1(_bytes(content)).hexdigest()}\n" for path, content in sorted(files.items())
        )
        commit = hashlib.sha1(names.encode()).hexdigest()
        self.commits[commit] = files
        self.refs[branch] = commit
        return commit


class HubServer:
    """Serves `repositories` (by owner/name) until `stop`; `log` has (method, path, token sent) of every request."""

    def __init__(self):
        self.repositories: dict[str, Repository] = {}
        self.web_files: dict[str, bytes] = {}  # files outside repositories, by path: /files/x.json
        self.token = "hf_rightrightright"
        self.drops: dict[str, int] = {}  # path: number of downloads that break off halfway
        self.slow_paths: set[str] = set()  # path suffixes of files sent 64 bytes at a time, ten times a second
        self.errors: dict[str, list[int]] = {}  # path: error statuses to send before the file
        self.redirect_to: str | None = None  # address that all requests are redirected to
        self.storage_servers: dict[str, str] = {}  # path prefix: address of the server that stores its files
        self.signature = ""  # query string of redirects to a storage server, such as ?X-Amz-Signature=…
        self.log: list[tuple[str, str, str | None]] = []
        self.raw_requests: list[bytes] = []  # every request with its headers
        server = self

        class Handler(_Handler):
            hub = server

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self):
        """Stop the server; a second call does nothing."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def add(self, name: str, files: dict, **access) -> Repository:
        self.repositories[name] = Repository(files, **access)
        return self.repositories[name]

    def download_count(self, ending: str) -> int:
        """Return the number of downloads of files whose path ends with `ending`."""
        return sum(method == "GET" and "/resolve/" in path and path.endswith(ending) for method, path, _ in self.log)


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # otherwise, the body waits 40 ms until the client has confirmed the headers
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._respond()

    def do_GET(self):
        self._respond()

    def do_CONNECT(self):  # sent to a proxy for https
        self.hub.raw_requests.append(self.requestline.encode() + b"\n" + self.headers.as_bytes())
        self._send(502)

    def _respond(self):
        path = unquote(urlsplit(self.path).path)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        self.hub.log.append((self.command, path, token))
        self.hub.raw_requests.append(self.requestline.encode() + b"\n" + self.headers.as_bytes())
        if self.hub.redirect_to:
            return self._send(302, {"Location": self.hub.redirect_to + self.path})
        if statuses := self.hub.errors.get(path):
            return self._send(statuses.pop(0))
        if path in self.hub.web_files:
            return self._file(self.hub.web_files[path], path, {})
        if refs := re.fullmatch(r"/api/models/([^/]+/[^/]+)/refs", path):
            return self._refs(self.hub.repositories.get(refs[1]))
        api = re.fullmatch(r"/api/(?:datasets|models)/([^/]+/[^/]+?)(?:/(revision|tree)/([^/]+).*)?", path)
        resolve = re.fullmatch(r"/(?:datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if token == "hf_expired":
            return self._send(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
        if not api and not resolve:
            return self._send(404)
        name = (api or resolve)[1]
        repository = self.hub.repositories.get(name)
        # the Hub does not distinguish a private repository from a missing one
        if repository is None or (repository.private and token != self.hub.token):
            return self._send(404 if token == self.hub.token else 401, {"X-Error-Code": "RepoNotFound"})
        if resolve and repository.gated and token != self.hub.token:
            return self._send(403 if token else 401, {"X-Error-Code": "GatedRepo"})
        revision = (api[3] or "main") if api else resolve[2]
        commit = repository.refs.get(revision, revision)
        if commit not in repository.commits:
            return self._send(404, {"X-Error-Code": "RevisionNotFound"})
        files = repository.commits[commit]
        if api and api[2] == "tree":
            return self._json([_entry(path, content) for path, content in sorted(files.items())])
        if api:
            siblings = [{"rfilename": path} for path in sorted(files)]
            return self._json(
                {"id": name, "sha": commit, "siblings": siblings, "private": repository.private, "tags": []}
            )
        if resolve[3] not in files:
            return self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        self._file(files[resolve[3]], path, {"X-Repo-Commit": commit})

    def _refs(self, repository):
        if repository is None:
            return self._send(404, {"X-Error-Code": "RepoNotFound"})
        branches = [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit}
            for name, commit in repository.refs.items()
        ]
        self._json({"branches": branches, "tags": [], "converts": []})

    def _file(self, content, path: str, headers: dict):
        content = _bytes(content)
        etag = f'"{hashlib.sha1(content).hexdigest()}"'
        if storage := next((to for start, to in self.hub.storage_servers.items() if path.startswith(start)), None):
            linked = {"X-Linked-Etag": etag, "X-Linked-Size": str(len(content))}
            return self._send(302, {**headers, **linked, "Location": storage + self.path + self.hub.signature})
        start = int(re.sub(r"\D.*", "", (self.headers.get("Range") or "bytes=0").removeprefix("bytes=")) or 0)
        headers = {**headers, "ETag": etag, "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        body = content[start:]
        if self.command == "GET" and self.hub.drops.get(path, 0) > 0:
            self.hub.drops[path] -= 1
            self._head(206 if start else 200, len(body), headers)
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self._head(206 if start else 200, len(body), headers)
        while self.command == "GET" and body:
            slow = path.endswith(tuple(self.hub.slow_paths))
            try:
                self.wfile.write(body[:64] if slow else body)
            except ConnectionError:  # the client has disconnected
                return
            body = body[64:] if slow else b""
            time.sleep(0.1 if slow else 0)

    def _json(self, value):
        body = json.dumps(value).encode()
        self._head(200, len(body), {"Content-Type": "application/json"})
        self.wfile.write(body)

    def _send(self, status: int, headers: dict | None = None):
        body = b'{"error": "no"}'
        self._head(status, len(body), {"Content-Type": "application/json", **(headers or {})})
        if self.command == "GET":
            self.wfile.write(body)

    def _head(self, status: int, length: int, headers: dict):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()


def environment(address: str, home: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a process that uses the server at `address` as the Hub and `home` as its cache.

    The token, proxy and cache of this machine are removed.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
    quiet = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    return {**inherited, **quiet, "HF_ENDPOINT": address, "HF_HOME": str(home), **variables}


class Client:
    """A Python process that loads items from the server; its cache is under `home`."""

    def __init__(self, server: HubServer | str, home: Path, **variables):
        address = server if isinstance(server, str) else server.address
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CLIENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(address, home, HF_HUB_DISABLE_PROGRESS_BARS="1", **variables),
        )
        self.stderr = ""  # set by `close`

    def load(self, task_file, language: str, **options) -> tuple[list[dict], dict]:
        """Return the result of `load_items`; raise AssertionError with the message if that raises DataError."""
        response = self._query({"task": str(task_file), "language": language, "options": options})
        if "error" in response:
            raise AssertionError(response["error"])
        return response["rows"], response["metadata"]

    def error_message(self, task_file, language: str, **options) -> str:
        """Return the message of the DataError that `load_items` raises."""
        response = self._query({"task": str(task_file), "language": language, "options": options})
        return response["error"]

    def set_environment(self, **environment):
        self._query({"environment": environment})

    def close(self):
        _, self.stderr = self._process.communicate()

    def _query(self, request: dict) -> dict:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._process.communicate()[1]
        return json.loads(line)


_CLIENT = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if "environment" in request:
        os.environ.update(request["environment"])
        response = {}
    else:
        from vernacular.data.load import load_items
        from vernacular.data.tasks import load_task
        from vernacular.core.errors import DataError
        try:
            rows, metadata = load_items(load_task(request["task"]), request["language"], **request["options"])
            response = {"rows": rows, "metadata": metadata}
        except DataError as error:
            response = {"error": str(error)}
    print(json.dumps(response), flush=True)
"""


def _bytes(content) -> bytes:
    return content.read_bytes() if isinstance(content, Path) else content


def _entry(path: str, content) -> dict:
    content = _bytes(content)
    return {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
