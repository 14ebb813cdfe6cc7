"""HTTP client of a model server: bounded concurrency, retries, and counts of requests and tokens.

A request is repeated after 408, 409, 429, 500, 502, 503, 504, a timeout, a dropped connection, or a response that is
not JSON; `Retry-After` takes precedence over exponential backoff, and 429 halves the concurrency. Other statuses, and
web pages, are final. The key is sent in a header and appears in no message.
"""

import email.utils
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

import httpx2

from vernacular.core.errors import ServerError, first_line
from vernacular.inference.server.limits import AdaptiveLimit, Slots

log = logging.getLogger("vernacular")
logging.getLogger("httpx2").setLevel(logging.WARNING)  # otherwise one line per request

RETRIED = (408, 409, 429, 500, 502, 503, 504)
ATTEMPTS = 8
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds between two attempts, without Retry-After; doubled each time
_LONGEST_RETRY_AFTER = 3600.0  # seconds
_CONNECT_TIMEOUT = 10.0  # seconds


class RefusedError(Exception):
    """Request that the server refused with a status that a repetition does not change."""

    def __init__(self, status: int, message: str):
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class DeniedError(ServerError):
    """Request that the server denied: the key is missing, wrong, or not valid for it."""


class _AbortedError(Exception):
    """Request that was given up because another one failed for good."""


@dataclass
class Usage:
    """What was sent and received, for the metadata and the summary of a job."""

    requests: int = 0  # that were answered
    retries: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # of the prompt tokens, as reported by the server
    received_bytes: int = 0

    def minus(self, other: "Usage") -> "Usage":
        """Return what was added since `other`."""
        return Usage(**{name: value - getattr(other, name) for name, value in asdict(self).items()})


class Client:
    """Client of the server at `source` (`http://host:port/v1`).

    Args:
        key: Sent as a bearer token; None: no header.
        key_name: Environment variable of the key, for messages.
        concurrency: Most requests at a time, over all jobs on this machine.
        timeout: Seconds without a byte of the response.
        attempts: Number of times that a request is sent.
    """

    def __init__(
        self,
        source: str,
        *,
        key: str | None = None,
        key_name: str | None = None,
        concurrency: int = 4,
        timeout: float = 600.0,
        attempts: int = ATTEMPTS,
    ):
        self.source = source.rstrip("/")
        self.root = self.source.removesuffix("/v1")
        self.concurrency, self.attempts = concurrency, attempts
        self.usage = Usage()
        self._key, self._key_name = key, key_name
        self._aborted = threading.Event()
        self._lock = threading.Lock()
        self._limit = AdaptiveLimit(concurrency)
        parts = urlsplit(self.source)
        self._netloc = parts.netloc
        self._slots = Slots(f"{parts.scheme}://{parts.netloc}", concurrency)
        self._http = httpx2.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(timeout, connect=_CONNECT_TIMEOUT),
            limits=httpx2.Limits(max_connections=concurrency),
            trust_env=parts.hostname not in ("127.0.0.1", "localhost", "::1"),  # no proxy to this machine
        )

    def close(self) -> None:
        """Close all connections."""
        self._aborted.set()
        self._http.close()
        self._slots.close()

    def get(self, path: str, *, root: bool = False) -> dict | list:
        """Return the JSON of a GET request; `root`: the path is not below `/v1`. Raises what `post` raises."""
        return self._request("GET", path, None, root)

    def post(self, path: str, body: dict, *, root: bool = False) -> dict | list:
        """Return the JSON of a POST request, after retries.

        Raises:
            RefusedError: The server refused the request, or has no such endpoint.
            DeniedError: The server denied access; where other servers have endpoints (`root`), this is a refusal.
            ServerError: All attempts failed.
        """
        return self._request("POST", path, body, root)

    def map(self, function: Callable, items: Iterable) -> Iterator[tuple]:
        """Yield (item, function(item)) in the order of completion, with `concurrency` calls at a time.

        If a call fails, those in progress are completed and yielded before its error is raised, and no other is begun.
        """
        pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="server")
        remaining, running, error = iter(items), {}, None
        try:
            while True:
                while error is None and len(running) < self.concurrency:
                    if (item := next(remaining, _END)) is _END:
                        break
                    running[pool.submit(function, item)] = item
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    item = running.pop(future)
                    if (raised := future.exception()) is None:
                        yield item, future.result()
                    elif error is None or isinstance(error, _AbortedError):
                        error = raised
                        self._aborted.set()
        finally:
            if running:  # a signal: do not wait for requests that may take minutes
                self._aborted.set()
            pool.shutdown(wait=False, cancel_futures=True)
        self._aborted.clear()
        if error is not None:
            raise error

    def count_tokens(self, prompt: int, completion: int, cached: int = 0) -> None:
        """Add the tokens of one answered request to the usage."""
        with self._lock:
            self.usage.prompt_tokens += prompt
            self.usage.completion_tokens += completion
            self.usage.cached_tokens += cached

    def _request(self, method: str, path: str, body: dict | None, root: bool):
        url = (self.root if root else self.source) + path
        for attempt in range(1, self.attempts + 1):
            delay = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1)) * random.uniform(0.75, 1.25)
            try:
                with self._limit.slot(), self._slots.slot(self._pause):
                    response = self._http.request(method, url, json=body)
            except httpx2.TransportError as error:
                problem = f"{type(error).__name__}: {first_line(error)}".removesuffix(": ")
            else:
                with self._lock:
                    self.usage.received_bytes += len(response.content)
                if response.is_success and response.headers.get("Content-Type", "").startswith("text/html"):
                    self._refuse(response, "a web page instead of JSON")
                if response.is_success:
                    try:
                        content = response.json()
                    except ValueError:
                        problem = "the response is not valid JSON"
                    else:
                        self._limit.count_answer()
                        with self._lock:
                            self.usage.requests += 1
                        return content
                else:
                    problem = f"HTTP {response.status_code}: {self._message(response)}"
                    if response.status_code in (401, 403) and not root:
                        key = f"the key in {self._key_name}" if self._key else "api_key_env, because no key is set"
                        raise DeniedError(f"{self.source}: the server denied access ({problem}). Check {key}.")
                    if response.status_code not in RETRIED:
                        self._refuse(response, self._message(response))
                    if response.status_code == 429:
                        self._limit.halve()
                    delay = _retry_after(response, delay)
            if attempt < self.attempts:
                with self._lock:
                    self.usage.retries += 1
                log.info("server: %s; attempt %d of %d in %.1f s", problem, attempt + 1, self.attempts, delay)
                self._pause(delay)
        raise ServerError(
            f"{self.source}: no answer after {self.attempts} attempts ({problem}). Finished requests are stored; start "
            "the server and run snakemake again."
        )

    def _refuse(self, response, message: str) -> None:
        with self._lock:
            self.usage.refused += 1
        raise RefusedError(response.status_code, message)

    def _pause(self, seconds: float) -> None:
        """Wait; raise _AbortedError as soon as another request has failed for good."""
        if self._aborted.wait(seconds):
            raise _AbortedError("another request failed")

    def _message(self, response) -> str:
        """Return the server's error message on one line, without the key and the server's address."""
        try:
            content = response.json()
            content = content.get("error", content) if isinstance(content, dict) else content
            text = content.get("message", content) if isinstance(content, dict) else content
        except ValueError:
            text = response.text
        line = " ".join(str(text).split())
        for private in filter(None, (self._key, self._netloc)):
            line = line.replace(private, "…")
        return line[:300]


_END = object()


def _retry_after(response, default: float) -> float:
    """Return the seconds of the header `Retry-After` (a number or a date); `default` without a valid one."""
    value = response.headers.get("Retry-After", "").strip()
    if not value:
        return default
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return default
    return min(max(0.0, seconds), _LONGEST_RETRY_AFTER)
