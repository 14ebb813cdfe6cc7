"""HTTP client of a model server: bounded concurrency, retries, and counts of requests and tokens.

A request is repeated after 408, 409, 429, 500, 502, 503, 504, a timeout, a dropped connection, or a response that is
not JSON; `Retry-After` takes precedence over exponential backoff, and 429 halves the concurrency. Other statuses, and
web pages, are final. A response has a total time and a size, which grow with the number of tokens that are asked for.
The key is sent in a header; it is removed from everything that the server sends back, and appears in no message.

Requests run in an event loop of their own: a limit on the time of a response, its headers included, needs one. `Slots`
is the configured limit of concurrent requests, shared by all jobs of a user on one machine by lock files, which the
kernel releases if a process is killed. `AdaptiveLimit` is that of one job, which a busy server reduces.
"""

import asyncio
import base64
import codecs
import contextlib
import email.utils
import fcntl
import json
import logging
import os
import random
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from vernacular.core.errors import ServerError, format_count, named, writing
from vernacular.core.fingerprint import fingerprint
from vernacular.core.processes import completed
from vernacular.inference.server.forms import AnswerError, Stated, one_line

_POLL = 0.02  # seconds between two attempts while all slots are taken


class Slots:
    """`count` slots for requests to `address` (scheme, host and port), shared by processes and threads."""

    def __init__(self, address: str, count: int, directory: Path | None = None):
        root = directory or Path(tempfile.gettempdir(), f"vernacular-{os.getuid()}")
        with writing(root):
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if root.stat().st_uid != os.getuid():
            raise ServerError(f"{root}: belongs to another user. Set TMPDIR to another directory.")
        stem = fingerprint(address)[:16]
        self._paths = [root / f"{stem}.{index}.lock" for index in range(count)]
        self._files = [open(path, "a") for path in self._paths]  # noqa: SIM115 (open as long as the object)
        self._free = list(range(count))  # not taken by this process
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def slot(self, wait: Callable[[float], None]) -> Iterator[None]:
        """Hold one slot; `wait(seconds)` is called while all are taken, and may raise."""
        while (index := self._take()) is None:
            wait(_POLL)
        try:
            yield
        finally:
            fcntl.flock(self._files[index], fcntl.LOCK_UN)
            with self._lock:
                self._free.append(index)

    def _take(self) -> int | None:
        with self._lock:
            for index in list(self._free):
                try:
                    fcntl.flock(self._files[index], fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:  # another process holds it
                    continue
                self._free.remove(index)
                return index
        return None

    def close(self) -> None:
        for file in self._files:
            file.close()


_GROWTH = 50  # answered requests after which a reduced limit is raised by one


class AdaptiveLimit:
    """A limit of `size` requests that is halved when the server is busy (429), and recovers slowly."""

    def __init__(self, size: int):
        self._size = self.limit = size  # requests: the most, and now
        self._active = self._answered = 0
        self._condition = threading.Condition()

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Hold one of the requests that the limit allows."""
        with self._condition:
            self._condition.wait_for(lambda: self._active < self.limit)
            self._active += 1
        try:
            yield
        finally:
            with self._condition:
                self._active -= 1
                self._condition.notify_all()

    def halve(self) -> None:
        """Reduce the limit, to at least one request."""
        with self._condition:
            self.limit, self._answered = max(1, self.limit // 2), 0

    def count_answer(self) -> None:
        """Count an answered request."""
        with self._condition:
            self._answered += 1
            if self._answered >= _GROWTH and self.limit < self._size:
                self.limit, self._answered = self.limit + 1, 0
                self._condition.notify_all()


log = logging.getLogger("vernacular")
logging.getLogger("httpx2").setLevel(logging.WARNING)  # otherwise one line per request

RETRIED = (408, 409, 429, 500, 502, 503, 504)
ATTEMPTS = 8
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds between two attempts, without Retry-After; doubled each time
_LONGEST_RETRY_AFTER = 600.0  # seconds; some servers state a day
_LONG_WAIT = 60.0  # seconds; a longer one is printed
_CONNECT_TIMEOUT = 10.0  # seconds
_SECONDS_PER_TOKEN = 0.25  # in addition to the timeout: some servers send spaces while they generate
_LEAST_BYTES, _BYTES_PER_ENTRY = 2**24, 512  # of a response, and for each token and each entry of its list
_SHORTEST_KEY = 6  # characters; anything shorter is a placeholder, and its letters are part of ordinary text


class RefusedError(Exception):
    """Request that the server refused with a status that a repetition does not change."""

    def __init__(self, status: int, message: str):
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class DeniedError(ServerError):
    """Request that the server denied: the key is missing, wrong, or not valid for it."""


class _AbortedError(Exception):
    """Request that was given up because another one failed for good."""


class _InvalidError(Exception):
    """Response that cannot be read."""


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
    uncounted: int = 0  # answers without the number of tokens of the prompt


class Client:
    """Client of the server at `source` (`http://host:port/v1`).

    `key` is a bearer token from the variable `key_name`; `concurrency`: requests at a time, over all jobs on this
    machine; `timeout`: seconds without a byte of the response.
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
        self.stated = Stated(self.source)
        self._key, self._key_name = key, key_name
        self._key_pattern = _key_pattern(key)
        self.redaction = f"[{key_name or 'key'}: removed]"  # in place of the key
        self._timeout = timeout
        self._aborted = threading.Event()
        self._last_answered: tuple[str, dict | None] | None = None  # address and body
        self._lock = threading.Lock()
        self._limit = AdaptiveLimit(concurrency)
        parts = urlsplit(self.source)
        self._netloc = parts.netloc
        self._slots = Slots(f"{parts.scheme}://{parts.netloc}", concurrency)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server", daemon=True)
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(timeout, connect=_CONNECT_TIMEOUT),
            limits=httpx2.Limits(max_connections=concurrency),
            trust_env=parts.hostname not in ("127.0.0.1", "localhost", "::1"),  # no proxy to this machine
        )
        self._thread.start()

    def close(self) -> None:
        """Close all connections."""
        self._aborted.set()
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end_requests(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        self._slots.close()

    async def _end_requests(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # so that no thread waits for a response
        await self._http.aclose()

    def get(self, path: str, *, root: bool = False) -> dict | list:
        """Return the JSON of a GET request; `root`: the path is not below `/v1`. Raises what `post` raises."""
        return self._request("GET", path, None, root)

    def post(self, path: str, body: dict, *, root: bool = False) -> dict | list:
        """Return the JSON of a POST request, after retries.

        Raises RefusedError (also where other servers have endpoints, `root`), DeniedError, and ServerError after all
        attempts.
        """
        return self._request("POST", path, body, root)

    def map(self, function: Callable, items: Iterable) -> Iterator[tuple]:
        """Yield (item, function(item)) in the order of completion; an error is raised when no call is in progress."""
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
                for future in completed(running):
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

    def count_tokens(self, prompt: int | None, completion: int | None, cached: int | None = None) -> None:
        """Add the tokens of one answered request to the usage; None: not reported."""
        with self._lock:
            self.usage.prompt_tokens += prompt or 0
            self.usage.completion_tokens += completion or 0
            self.usage.cached_tokens += cached or 0
            self.usage.uncounted += prompt is None

    def _request(self, method: str, path: str, body: dict | None, root: bool):
        url = (self.root if root else self.source) + path
        is_answered = False
        for attempt in range(1, self.attempts + 1):
            delay = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1)) * random.uniform(0.75, 1.25)
            try:
                with self._limit.slot(), self._slots.slot(self._pause):
                    response = self._exchange(method, url, body)
                is_web_page = response.headers.get("Content-Type", "").startswith("text/html")
                content = None if is_web_page or not response.is_success else self._parse(response)
            except _InvalidError as error:
                is_answered, problem = True, str(error)
            except httpx2.RequestError as error:
                problem = self.redact(named(error))
            else:
                if response.is_success and is_web_page:
                    self._refuse(response, "a web page instead of JSON")
                if response.is_success:
                    self._limit.count_answer()
                    with self._lock:
                        self.usage.requests += 1
                        self._last_answered = (url, body) if method == "POST" else self._last_answered
                    return content
                problem = f"HTTP {response.status_code}: {self._message(response)}"
                if response.status_code in (401, 403) and not root:
                    key = f"the key in {self._key_name}" if self._key else "api_key_env, because no key is set"
                    raise DeniedError(f"{self.source}: the server denied access ({problem}). Check {key}.")
                if response.status_code not in RETRIED:
                    self._refuse(response, self._message(response))
                if response.status_code == 429:
                    self._limit.halve()
                delay = retry_after(response, delay)
                is_answered = attempt == self.attempts and response.status_code >= 500 and self._answers_again()
            if attempt < self.attempts:
                with self._lock:
                    self.usage.retries += 1
                log.info("server: %s; attempt %d of %d in %.1f s", problem, attempt + 1, self.attempts, delay)
                if delay > _LONG_WAIT:
                    print(f"{self.source}: {problem}; the next attempt is in {delay / 60:.0f} minutes", flush=True)
                self._pause(delay)
        if is_answered:  # other requests may succeed
            raise AnswerError(None, f"{problem}, also after {self.attempts} attempts")
        advice = "Finished requests are stored; start the server and run the workflow again."
        raise ServerError(
            f"{self.source}: no answer after {format_count(self.attempts, 'attempt')} ({problem}). {advice}"
        )

    def _answers_again(self) -> bool:
        """Return whether the server still answers the last request that it answered."""
        if self._last_answered is None:
            return False
        url, body = self._last_answered
        try:
            with self._limit.slot(), self._slots.slot(self._pause):
                return self._exchange("POST", url, body).is_success
        except (_InvalidError, httpx2.RequestError):
            return False

    def _exchange(self, method: str, url: str, body: dict | None) -> httpx2.Response:
        """Return the response, read and decompressed; raise _InvalidError or httpx2.RequestError."""
        seconds, size = response_limits(body, self._timeout)
        future = asyncio.run_coroutine_threadsafe(self._receive(method, url, body, seconds, size), self._loop)
        try:
            completed([future])
            status, headers, received = future.result()
        except TimeoutError:
            raise httpx2.ReadTimeout(f"the response is not complete after {seconds:.0f} seconds") from None
        finally:
            future.cancel()
        with self._lock:
            self.usage.received_bytes += len(received)
        # the headers that are read, and none that describes the compression
        plain = [(name, headers[name]) for name in ("Content-Type", "Retry-After") if name in headers]
        return httpx2.Response(status, content=_decompress(headers, received, size), headers=plain)

    async def _receive(self, method: str, url: str, body: dict | None, seconds: float, size: int):
        received = bytearray()
        async with asyncio.timeout(seconds), self._http.stream(method, url, json=body) as response:
            async for chunk in response.aiter_raw():
                received += chunk
                if len(received) > size:
                    raise _InvalidError(f"the response has more than {size:,} bytes")
        return response.status_code, response.headers, bytes(received)

    def _parse(self, response: httpx2.Response) -> dict | list:
        """Return the JSON of a response without the key; raise _InvalidError."""
        charset = response.charset_encoding
        try:
            if charset is not None:
                codecs.lookup(charset)
            content = json.loads(response.content)
            if self._key_pattern and self._key_pattern.search(response.content.decode("utf-8", "replace")):
                content = self._without_key(content)
        except LookupError:
            raise _InvalidError(f"the response has the unknown charset {charset!r:.40}") from None
        except (ValueError, RecursionError):
            raise _InvalidError("the response is not valid JSON") from None
        return content

    def _without_key(self, content):
        """Return JSON-like values with the key replaced in all texts."""
        if isinstance(content, dict):
            return {self.redact(name): self._without_key(value) for name, value in content.items()}
        if isinstance(content, list):
            return [self._without_key(value) for value in content]
        return self.redact(content) if isinstance(content, str) else content

    def redact(self, text: str) -> str:
        """Return `text` with the key, in any of its usual encodings, replaced by the name of its variable."""
        return self._key_pattern.sub(lambda _: self.redaction, text) if self._key_pattern else text

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
        text = response.content.decode("utf-8", "replace")
        try:
            content = json.loads(text)
            content = content.get("error", content) if isinstance(content, dict) else content
            text = str(content.get("message", content) if isinstance(content, dict) else content)
        except (ValueError, RecursionError):
            pass
        return one_line(self.redact(text)).replace(self._netloc, "…")[:300]


def response_limits(body: dict | None, timeout: float) -> tuple[float, int]:
    """Return (seconds, bytes) that a response may take: what is sent, and each token and list entry asked for."""
    body = body or {}
    sampling = body.get("sampling_params", body)  # of SGLang
    tokens = next((sampling[name] for name in _TOKEN_LIMITS if name in sampling), 0)
    entries = max([1, *(body[name] for name in _LIST_LENGTHS if isinstance(body.get(name), int))])
    size = _LEAST_BYTES + _BYTES_PER_ENTRY * (len(json.dumps(body)) + tokens * entries)
    return timeout + tokens * _SECONDS_PER_TOKEN, size


_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens", "n_predict", "max_new_tokens")
_LIST_LENGTHS = ("logprobs", "top_logprobs", "n_probs", "top_logprobs_num")


def _decompress(headers: httpx2.Headers, received: bytes, size: int) -> bytes:
    """Return the content of a response; raise _InvalidError if it is damaged or longer than `size`."""
    content = bytearray()
    try:
        for chunk in httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(received)).iter_bytes():
            content += chunk
            if len(content) > size:
                raise _InvalidError(f"the response has more than {size:,} bytes")
    except httpx2.DecodingError:
        raise _InvalidError("the compressed response is damaged") from None
    return bytes(content)


def _key_pattern(key: str | None) -> re.Pattern | None:
    """Return a pattern of the key: as it is, escaped in a URL, in JSON or in HTML, reversed, and in base64 or hex."""
    if key is None or len(key) < _SHORTEST_KEY:
        return None
    data = key.encode()
    parts = ["".join(map(_escaped, text)) for text in (key, key[::-1])] + [f"(?i:{data.hex()})"]
    for shift in range(3):  # bytes before the key in a group of three; characters at the ends depend on the neighbors
        encoded = base64.b64encode(b"\0" * shift + data).decode()
        whole = encoded[(0, 2, 3)[shift] : len(encoded) - (0, 3, 2)[(shift + len(data)) % 3]]
        parts.append(re.escape(whole).replace(r"\+", "[+-]").replace("/", "[/_]"))
    return re.compile("|".join(parts))


def _escaped(character: str) -> str:
    """Return a pattern of a character and its escapes in URLs, JSON and HTML."""
    number = ord(character)
    in_html = f"&#0*(?:{number}|(?i:x0*{number:x}));"
    return rf"(?:\\?{re.escape(character)}|%(?:25)?(?i:{number:02x})|\\+u(?i:{number:04x})|{in_html})"


_END = object()


def retry_after(response, default: float) -> float:
    """Return the seconds of the header `Retry-After` (a number or a date); `default` without a valid one."""
    value = response.headers.get("Retry-After", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return default
    if seconds != seconds:  # "nan" is a number, too
        return default
    return min(max(0.0, seconds), _LONGEST_RETRY_AFTER)
