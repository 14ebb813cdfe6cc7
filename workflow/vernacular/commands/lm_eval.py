"""Command `lm-eval`: lm-eval's own command line, whose model is computed by this package.

    vernacular lm-eval run --model_args pretrained=./mine --tasks galician_bench --num_fewshot 5

is `lm_eval run --model vernacular …`, with all other arguments of lm-eval. In Python:

    >>> import lm_eval, vernacular                                                              # doctest: +SKIP
    >>> lm_eval.simple_evaluate(model=vernacular.lm_eval_model("./mine"), tasks=["galcola"])    # doctest: +SKIP

Requests are those of `--model hf`: context and continuation are tokenized together, rolling windows and the token
before an empty context are the same, and so are greedy texts. Needs lm_eval, torch and transformers in one environment.
"""

import contextlib
import inspect
import logging
import sys
import tempfile
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from vernacular.core.artifacts import Kind
from vernacular.core.errors import ConfigError, ModelError, UserError, suggest
from vernacular.core.fingerprint import fingerprint
from vernacular.core.model_record import ModelRecord
from vernacular.inference.engine import engine_of
from vernacular.inference.model.tokenization import decode_continuation
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.protocols.schema import REQUESTS

try:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model

    from vernacular.lm_eval.instances import as_context, instance_request
    from vernacular.lm_eval.loading import answer, before_stop
except ImportError as error:
    problem = f"lm_eval cannot be imported by {sys.executable} ({error}); install it there: pip install lm_eval"
    raise UserError(f"lm-eval: {problem}") from error

log = logging.getLogger("vernacular")

# Arguments of lm-eval's `hf` that change nothing here: batches follow from the tokens of a text and the memory.
IGNORED = ("batch_size", "max_batch_size", "truncation", "logits_cache", "use_fast_tokenizer", "parallelize")
_DEFAULTS = (None, False, 1, "1")  # of these


def lm_eval(args) -> str:
    """Run lm-eval's command line with `--model vernacular`; what it prints and writes is its own."""
    from lm_eval.__main__ import cli_evaluate

    options = args.options[1:] if args.options[:1] == ["run"] else args.options
    if given := [option for option in options if option.partition("=")[0] in ("--model", "-M")]:
        raise ConfigError(f"lm-eval: {given[0]}: it is always vernacular; name yours in --model_args pretrained=…")
    sys.argv = ["lm_eval", "run", "--model", "vernacular", *options]
    cli_evaluate()
    return "lm-eval: finished"


@register_model("vernacular")
class VernacularLM(LM):
    """A model of transformers, or an adapter on it, for lm-eval.

    Args:
        pretrained: A path, or the ID of a repository of the Hub; `peft`: of an adapter on it.
        backend: "causal", "seq2seq" or, by the architecture, "default".
        add_bos_token: Whether BOS precedes every text; None: as the tokenizer adds it.
        threads: Of the CPU; None: unchanged.
        settings: Others of `hf`, without effect here (IGNORED).

    Raises:
        ConfigError: An argument is unknown.
        ModelError: The model cannot be found or loaded; MachineError: this machine cannot run it.
    """

    def __init__(
        self,
        pretrained: str,
        *,
        revision: str | None = "main",
        dtype: str = "auto",
        device: str | None = None,
        peft: str | None = None,
        gguf_file: str | None = None,
        trust_remote_code: bool = False,
        max_length: int | None = None,
        backend: str = "default",
        add_bos_token: bool | None = None,
        enable_thinking: bool | None = None,
        think_end_token: str | None = None,
        chat_template_args: dict | None = None,
        threads: int | None = None,
        **settings,
    ):
        super().__init__()
        names = inspect.signature(type(self)).parameters.keys() - {"settings"}
        if unknown := [name for name in settings if name not in IGNORED]:
            raise ConfigError(f"model_args: unknown argument {unknown[0]}.{suggest(unknown[0], [*names, *IGNORED])}")
        if ignored := [name for name, value in settings.items() if value not in _DEFAULTS]:
            log.warning("model_args: %s: ignored; texts are batched by their tokens.", ", ".join(ignored))
        self._resources = contextlib.ExitStack()
        source = f"{pretrained}/{gguf_file}" if gguf_file else pretrained
        is_local = Path(source).expanduser().exists()
        source = str(Path(source).expanduser().resolve()) if is_local else source
        source += f"@{revision}" if revision not in (None, "main") and not is_local else ""
        self.record = self._resolve(source, peft, trust_remote_code, "auto" if backend == "default" else backend)
        kind = {None: "auto", "cuda:0": "cuda"}.get(device, device)
        self.record |= {
            "dtype": str(dtype).removeprefix("torch."), "device": kind, "trust_remote_code": trust_remote_code,
            "max_length": max_length, "bos": {None: "auto", True: "always", False: "never"}[add_bos_token],
            "chat": "auto", "enable_thinking": enable_thinking, "think_end_token": think_end_token,
            "chat_template_args": chat_template_args,
        }  # fmt: skip
        engine = engine_of(self.record)
        self._engine = engine(self.record | {"adapter": None}, threads=threads)
        self._resources.enter_context(self._engine.model(self.record))
        loaded = self._engine.loaded
        if add_bos_token is None and loaded.kind == "causal" and loaded.bos_id is None and loaded.eos_id is not None:
            loaded.record = self.record = self.record | {"bos": "eos"}  # as `hf` puts EOS before an empty context
        self.tokenizer = loaded.tokenizer
        self._drops_space = _drops_space(loaded.tokenizer)

    def _resolve(self, source: str, adapter: str | None, trust_remote_code: bool, kind: str) -> ModelRecord:
        from vernacular.checkpoints.adapters import resolve_adapter
        from vernacular.checkpoints.resolve import resolve

        converted = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="vernacular-lm-eval-")))
        record = resolve("model", source, converted, kind=kind, trust_remote_code=trust_remote_code)
        if record.kind == "masked":
            raise ModelError("model_args: pretrained: a masked language model, which lm-eval does not evaluate.")
        return resolve_adapter("adapter", adapter, record) if adapter else record

    @property
    def tokenizer_name(self) -> str:
        return f"vernacular-{fingerprint([self.record.source, self.record.fingerprint])[:16]}"

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        template = getattr(self.tokenizer, "chat_template", None)
        return (template if isinstance(template, str) else str(template)) if chat_template and template else ""

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Return the turns themselves, which the engine renders with the model's template."""
        return as_context(chat_history, add_generation_prompt)

    def loglikelihood(self, requests: list[Instance], **_) -> list[tuple[float, bool]]:
        """Return (log-likelihood of the continuation in nats, whether each of its tokens is the most probable one)."""
        return self._results("loglikelihood", requests, SCORES, _span)

    def loglikelihood_rolling(self, requests: list[Instance], **_) -> list[float]:
        """Return the log-likelihood of each text in nats, in windows of the context length."""
        return self._results("loglikelihood_rolling", requests, SCORES, lambda row, _: _span(row, _)[0])

    def generate_until(self, requests: list[Instance], **_) -> list[str]:
        """Return a text for each request, up to its first stop string."""
        return self._results("generate_until", requests, GENERATIONS, self._text)

    def _results(self, name: str, requests: list[Instance], kind: Kind, read: Callable) -> list:
        """Compute requests in the order of their texts, and store each part in lm-eval's cache, if there is one."""
        results: dict[int, object] = {}
        order = sorted(range(len(requests)), key=lambda index: str(requests[index].args[0]))
        for _, part in groupby(enumerate(order), key=lambda pair: pair[0] // _PART):
            indices = [index for _, index in part]
            rows = [instance_request(requests[index], str(index), index) for index in indices]
            outputs, _ = self._engine.run(kind, pa.Table.from_pylist(rows, schema=REQUESTS.schema))
            by_id = {row["item_id"]: row for row in outputs.to_pylist()}
            for index in indices:
                arguments = requests[index].args
                results[index] = 0.0 if arguments == ("",) else read(by_id[str(index)], requests[index])
                self.cache_hook.add_partial(name, arguments, results[index])
        return [results[index] for index in range(len(requests))]

    def _text(self, row: dict, instance: Instance) -> str:
        if (text := answer(row)) is None:
            raise ModelError(f"{instance.task_name}, document {instance.doc_id}: no text ({row['flags']}).")
        text = before_stop(text, instance.args[1])
        return text.removeprefix(" ") if self._drops_space else text


_PART = 2_000  # requests that are computed, and cached, at a time


def _span(row: dict, instance: Instance) -> tuple[float, bool]:
    values = row["logprobs"]
    if not values or None in values:
        raise ModelError(f"{instance.task_name}, document {instance.doc_id}: no log-likelihood ({row['flags']}).")
    return float(sum(values)), all(row["is_greedy"])


def _drops_space(tokenizer) -> bool:
    """Return whether the text of new tokens alone, which is that of `hf`, lacks the space at its beginning."""
    ids = tokenizer("a b", add_special_tokens=False)["input_ids"]
    for n in range(1, len(ids)):
        if decode_continuation(tokenizer, ids[:n], ids[n:]).startswith(" "):
            return not tokenizer.decode(ids[n:]).startswith(" ")
    return False
