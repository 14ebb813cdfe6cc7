"""Fake model servers on 127.0.0.1 around a tiny transformers model, in the formats of vLLM, SGLang and OpenAI.

`Server(model, "vllm")` answers honestly. A subclass, or the argument `lie`, changes one thing; `faults` makes requests
fail before they are answered. Every answered request is counted by its content.
"""

import copy
import functools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from tokenizers import AddedToken
from vernacular.core.model_record import ModelRecord, read_model
from vernacular.inference.model.loaded import LoadedModel, wrap
from vernacular.inference.server import checks

from support import stages, tiny

KEY = "sk-right-and-secret"
_STEPS = 150


def trained_model(tokens: str = "bytes", arch: str = "llama", steps: int = _STEPS) -> LoadedModel:
    """Return a tiny model that has learned the lines of `tiny` and the probe's texts: real text is plausible to it."""
    return _train(tokens, arch, steps)


@functools.cache
def _train(tokens: str, arch: str, steps: int) -> LoadedModel:
    tokenizer = copy.deepcopy(tiny.tokenizer(tokens))
    tokenizer.add_tokens([AddedToken(label, normalized=False) for label in checks.LABELS])  # as in real vocabularies
    loaded = wrap(tiny.model(arch, len(tokenizer)), tokenizer, tiny.record(arch))
    lines = [
        *tiny.LINES,
        *checks.TEXTS,
        checks.PROMPT,
        checks.QUESTION + " B",
        "yes yes yes yes no no no no yes yes yes",
    ]
    batches = [torch.tensor([loaded.tokenizer(line)["input_ids"]]) for line in dict.fromkeys(lines)]
    torch.manual_seed(0)
    loaded.model.requires_grad_(True)
    optimizer = torch.optim.Adam(loaded.model.parameters(), lr=3e-3)
    for step in range(steps):
        ids = batches[step % len(batches)]
        loss = loaded.model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    loaded.model.requires_grad_(False)
    return loaded


@functools.lru_cache(maxsize=500)  # every probe of every server asks a model the same, hundreds of times
@torch.inference_mode()
def _logprobs(model: torch.nn.Module, ids: tuple[int, ...]) -> torch.Tensor:
    return model(input_ids=torch.tensor([ids])).logits[0].float().log_softmax(-1)


WEB_PAGE = {"page": "<html>"}  # an answer that is sent as a web page


@dataclass(frozen=True)
class Raw:
    """An answer that is sent byte by byte as it is, also if it is no JSON; chunks are sent one by one."""

    chunks: Iterable[bytes]
    headers: dict = field(default_factory=dict)
    status: int = 200


class Refusal(Exception):
    """A 4xx answer."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Server:
    """A server of a tiny model.

    Args:
        form: "vllm", "sglang", "echo" (log-probabilities of the prompt by `echo` only), "chat" (chats only), "text" (top 20
            log-probabilities by text), or "strict" (chats only, without log-probabilities; a field that is not among
            `accepted` is refused, as at some providers).
        lie: {name of a method: replacement}, called as `replacement(server, original, …)`.
        faults: Called with (server, number of the request, path); returns None to answer, or what to do instead: a status,
            (status, headers), "hang", "drop", "garbage".
        length: Context length that is enforced; None: no limit.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        form="vllm",
        *,
        lie=None,
        faults=None,
        key=None,
        length=400,
        name="org/tiny",
        port=0,
        accepted=("temperature", "top_p"),
    ):
        self.accepted = {"model", "messages", "max_completion_tokens", "stream", *accepted}
        self.loaded, self.form, self.faults, self.key, self.length, self.name = loaded, form, faults, key, length, name
        for method, replacement in (lie or {}).items():
            setattr(self, method, functools.partial(replacement, self, getattr(self, method)))
        self.answered: Counter = Counter()  # content of each answered request
        self.received = 0  # requests, failed ones included
        self.active = self.most_active = 0
        self.headers: list[str] = []  # keys that were sent
        self.released = threading.Event()  # ends requests that hang
        self.lock, self._model_lock = threading.Lock(), threading.Lock()
        handler = type("Handler", (_Handler,), {"fake": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self.source = f"http://127.0.0.1:{self.port}/v1"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self):
        self.released.set()
        self._http.shutdown()
        self._http.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    # ----- the model -------------------------------------------------------------------------------------------------

    def logprobs(self, ids: list[int]) -> torch.Tensor:
        """Return log-probabilities [len(ids), vocabulary]: row i is the distribution after ids[:i + 1]."""
        with self._model_lock:
            return _logprobs(self.loaded.model, tuple(ids))

    def prompt_values(self, ids: list[int], body: dict) -> list[tuple[float | None, float | None, int | None]]:
        """Return (log-probability, best log-probability, best token) of each token of a prompt; None for the first."""
        rows = self.logprobs(ids)
        values = [
            (float(rows[i - 1, ids[i]]), float(rows[i - 1].max()), int(rows[i - 1].argmax()))
            for i in range(1, len(ids))
        ]
        return [(None, None, None), *values]

    def encode(self, text: str) -> list[int]:
        return self.loaded.tokenizer(text, add_special_tokens=True)["input_ids"]

    def prompt_ids(self, prompt) -> list[int]:
        """Return the token IDs that the server reads for a prompt."""
        return list(prompt) if isinstance(prompt, list) else self.encode(prompt)

    def usage(self, ids: list[int], n: int) -> dict:
        return {"prompt_tokens": len(ids), "completion_tokens": n, "total_tokens": len(ids) + n}

    def generate(
        self, ids: list[int], n: int, temperature: float, seed: int, stop: list[str]
    ) -> tuple[list[int], list[float], str]:
        """Return (new tokens, their log-probabilities, finish reason)."""
        generator = torch.Generator().manual_seed(seed or 0)
        new, values = [], []
        for _ in range(n):
            row = self.logprobs(ids + new)[-1]
            token = (
                int(row.argmax())
                if temperature == 0
                else int(torch.multinomial((row / temperature).exp(), 1, generator=generator))
            )
            new.append(token)
            values.append(float(row[token]))
            if token == self.loaded.eos_id or any(word in self.loaded.tokenizer.decode(new) for word in stop):
                return new, values, "stop"
        return new, values, "length"

    # ----- the endpoints ---------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, body: dict) -> dict:
        if self.form == "strict":
            return self.strict(path, body)
        if path == "/v1/models":
            return {"object": "list", "data": [{"id": self.name, "max_model_len": self.length, "owned_by": self.form}]}
        if path == "/tokenize" and self.form in ("vllm", "sglang"):
            return {
                "tokens": self.loaded.tokenizer(body["prompt"], add_special_tokens=body["add_special_tokens"])[
                    "input_ids"
                ]
            }
        if path == "/v1/completions" and self.form != "chat":
            return self.completions(body)
        if path == "/v1/chat/completions" and self.form == "chat":
            return self.chat(body)
        if path == "/generate" and self.form == "sglang":
            return self.sglang(body)
        raise Refusal(404, "Not Found")

    def strict(self, path: str, body: dict) -> dict:
        if path == "/v1/models":
            raise Refusal(403, "the key may not list models")
        if path != "/v1/chat/completions":
            raise Refusal(403, "Missing Authentication Token")
        if unknown := sorted(body.keys() - self.accepted):
            raise Refusal(400, f"Unsupported parameter: {unknown[0]}")
        content = self.chat({**body, "max_tokens": body["max_completion_tokens"]})
        return content | {"usage": {**content["usage"], "completion_tokens_details": {"reasoning_tokens": 0}}}

    def check_model(self, body: dict):
        if body["model"] != self.name:
            raise Refusal(404, f"The model {body['model']} does not exist.")

    def completions(self, body: dict) -> dict:
        self.check_model(body)
        if self.form == "text" and isinstance(body["prompt"], list):
            raise Refusal(400, "prompt must be a string")
        if self.form == "text" and body.keys() & {"top_k", "min_p"}:
            raise Refusal(400, "unknown parameter: top_k")
        ids = self.prompt_ids(body["prompt"])
        if self.length and len(ids) + 1 > self.length:
            raise Refusal(400, f"maximum context length is {self.length} tokens")
        stop = body.get("stop") or []
        new, values, reason = self.generate(
            ids, body["max_tokens"], body.get("temperature", 0.8), body.get("seed"), stop
        )
        text = self.loaded.tokenizer.decode(new, skip_special_tokens=True)
        stop_word = next((word for word in stop if word in text), None)
        if stop_word and not body.get("include_stop_str_in_output"):
            text = text[: text.find(stop_word)]
        choice = {"index": 0, "text": text, "finish_reason": reason, "logprobs": None}
        if self.form == "vllm":
            choice |= {"stop_reason": stop_word, "prompt_logprobs": None}
        if k := body.get("logprobs"):
            choice["logprobs"] = self.legacy_logprobs(ids, new, values, k, body)
        if body.get("return_token_ids") and self.form == "vllm":
            choice |= {"prompt_token_ids": ids, "token_ids": new}
        if body.get("prompt_logprobs") is not None and self.form == "vllm":
            entries = [
                self.entry(token, *value) for token, value in zip(ids, self.prompt_values(ids, body), strict=False)
            ]
            choice["prompt_logprobs"] = entries
        return {
            "object": "text_completion",
            "model": self.name,
            "choices": [choice],
            "usage": self.usage(ids, len(new)),
        }

    def entry(self, token: int, value, best, best_token) -> dict | None:
        if value is None:
            return None
        entry = {str(best_token): {"logprob": best, "rank": 1, "decoded_token": "…"}}
        return entry | {str(token): {"logprob": value, "rank": 1, "decoded_token": "…"}}

    def token_name(self, token: int, body: dict) -> str:
        if body.get("return_tokens_as_token_ids") and self.form != "text":
            return f"token_id:{token}"
        return self.loaded.tokenizer.decode([token])

    def legacy_logprobs(self, ids, new, values, k, body) -> dict:
        rows = [self.logprobs(ids + new[:i])[-1] for i in range(len(new))]
        tops = [dict(zip(row.topk(k).indices.tolist(), row.topk(k).values.tolist(), strict=True)) for row in rows]
        if (wanted := body.get("logprob_token_ids")) and self.form == "vllm":
            tops = [{token: float(row[token]) for token in wanted} | top for row, top in zip(rows, tops, strict=True)]
        tokens, values = list(new), list(values)
        if body.get("echo") and self.form in ("vllm", "echo"):
            prompt = self.prompt_values(ids, body)
            tokens, values = ids + tokens, [value for value, _, _ in prompt] + values
            tops = [None if best is None else {token: best} for _, best, token in prompt] + tops
        named = [
            None if top is None else {self.token_name(token, body): value for token, value in top.items()}
            for top in tops
        ]
        return {
            "tokens": [self.token_name(token, body) for token in tokens],
            "token_logprobs": values,
            "top_logprobs": named,
        }

    def chat(self, body: dict) -> dict:
        self.check_model(body)
        ids = self.encode("\n".join(turn["content"] for turn in body["messages"]))
        new, values, reason = self.generate(
            ids, body["max_tokens"], body.get("temperature", 0.8), body.get("seed"), body.get("stop") or []
        )
        text = self.loaded.tokenizer.decode(new, skip_special_tokens=True)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        if body.get("logprobs"):
            name, entries = self.loaded.tokenizer.decode, []
            for i, (token, value) in enumerate(zip(new, values, strict=True)):
                row = self.logprobs(ids + new[:i])[-1].topk(body["top_logprobs"])
                pairs = zip(row.indices.tolist(), row.values.tolist(), strict=True)
                top = [{"token": name([t]), "logprob": v} for t, v in pairs]
                entries.append({"token": name([token]), "logprob": value, "top_logprobs": top})
            choice["logprobs"] = {"content": entries}
        return {"object": "chat.completion", "choices": [choice], "usage": self.usage(ids, len(new))}

    def sglang(self, body: dict) -> dict:
        ids, sampling = self.prompt_ids(body["input_ids"]), body["sampling_params"]
        if self.length and len(ids) + 1 > self.length:
            raise Refusal(400, f"longer than the model's context length ({self.length} tokens)")
        new, values, reason = self.generate(ids, sampling["max_new_tokens"], sampling["temperature"], 0, [])
        meta = {
            "prompt_tokens": len(ids),
            "completion_tokens": len(new),
            "cached_tokens": 0,
            "finish_reason": {"type": reason},
        }
        if body.get("return_logprob"):
            start = body.get("logprob_start_len", -1)
            if start >= 0:
                prompt = self.prompt_values(ids, sampling)
                shown = [(None, None, None), *prompt[start + 1 :]]
                meta["input_token_logprobs"] = [
                    [value, token, None] for (value, _, _), token in zip(shown, ids[start:], strict=False)
                ]
                meta["input_top_logprobs"] = [
                    None if best is None else [[best, token, None]] for _, best, token in shown
                ]
            meta["output_token_logprobs"] = [[value, token, None] for token, value in zip(new, values, strict=True)]
            k, rows = body.get("top_logprobs_num", 0), [self.logprobs(ids + new[:i])[-1] for i in range(len(new))]
            meta["output_top_logprobs"] = [
                [[value, token, None] for value, token in zip(*map(torch.Tensor.tolist, row.topk(k)), strict=True)]
                for row in rows
            ]
            row = rows[0]
            if wanted := body.get("token_ids_logprob"):
                meta["output_token_ids_logprobs"] = [[[float(row[token]), token, None] for token in wanted]]
        return {"text": self.loaded.tokenizer.decode(new), "meta_info": meta}


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # otherwise, the body waits 40 ms until the client has confirmed the headers
    fake: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._respond({})

    def do_POST(self):
        self._respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _respond(self, body: dict):
        fake = self.fake
        with fake.lock:
            fake.received += 1
            number = fake.received
            fake.active += 1
            fake.most_active = max(fake.most_active, fake.active)
        fake.headers.append(self.headers.get("Authorization"))
        try:
            self._answer(fake, number, body)
        except ConnectionError:
            self.close_connection = True
        finally:
            with fake.lock:
                fake.active -= 1

    def _answer(self, fake: Server, number: int, body: dict):
        fault = fake.faults(fake, number, self.path) if fake.faults else None
        if fault == "hang":
            fake.released.wait(30)
            fault = "drop"
        if fault == "drop":
            self.close_connection = True
            self.connection.close()
            return
        if fault == "garbage":
            return self._send(200, b'{"choices": [{"text": ')
        if fault is not None:
            status, headers = fault if isinstance(fault, tuple) else (fault, {})
            return self._send(status, b'{"error": {"message": "busy"}}', headers)
        if fake.key and self.headers.get("Authorization") != f"Bearer {fake.key}":
            return self._send(
                401, json.dumps({"error": {"message": f"bad key {self.headers.get('Authorization')}"}}).encode()
            )
        try:
            content = fake.answer(self.command, self.path, body)
        except Refusal as error:
            return self._send(error.status, json.dumps({"error": {"message": str(error)}}).encode())
        if isinstance(content, Raw):
            return self._send_raw(content)
        with fake.lock:
            fake.answered[json.dumps([self.path, body], sort_keys=True)] += 1
        headers = {"Content-Type": "text/html; charset=utf-8"} if content is WEB_PAGE else {}
        self._send(200, json.dumps(content).encode(), headers)

    def _send_raw(self, content: Raw):
        self.close_connection = True
        self.send_response(content.status)
        for name, value in {"Content-Type": "application/json", "Connection": "close", **content.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for chunk in content.chunks:
            self.wfile.write(chunk)

    def _send(self, status: int, content: bytes, headers: dict | None = None):
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def slow(server: Server, number: int, path: str) -> None:
    """A fault that only takes time, so that concurrent requests overlap."""
    time.sleep(0.02)


def record(
    server: Server, directory, *, tokenizer: LoadedModel | None = None, name: str = "big", **settings
) -> ModelRecord:
    """Run the command `server` in `directory` and return the record, with settings as for a job.

    `tokenizer`: the model whose tokenizer is written to `directory` and configured; None: none is.
    """
    from vernacular.stages import server as command

    spec = {"name": name, "source": server.source, "model": server.name, "concurrency": 4, **settings}
    if tokenizer is not None:
        tokenizer.tokenizer.save_pretrained(directory / "tokenizer")
        spec["tokenizer"] = str(directory / "tokenizer")
    out = directory / "resources" / "models" / f"{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    command.server(stages.arguments(command.server, spec=spec, out=out))
    keys = ("concurrency", "timeout", "api_key_env", "chat", "bos", "max_length")
    return read_model(out) | {key: spec[key] for key in keys if key in spec}
