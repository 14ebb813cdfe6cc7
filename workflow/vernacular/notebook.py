"""A model in a notebook: what a run computes of texts, as pandas DataFrames, without Snakemake.

    >>> import vernacular
    >>> model = vernacular.load("./mine", dtype="float32")                                      # doctest: +SKIP
    >>> model.surprisal(["O gato dorme."])           # a row per token                          # doctest: +SKIP
    >>> model.score(["O gato dorme no"], ["tellado"])                                           # doctest: +SKIP
    >>> model.compare(["O gato dorme."], ["O gato dormen."])                                    # doctest: +SKIP
    >>> model.generate(["A capital de Galicia é"])                                              # doctest: +SKIP

The requests are those of the protocols `acceptability`, `last_word`, `minimal_pair` and `generation`, the outputs are
those of the model's engine (`inference/engine.py`), and the values those of the protocol, as in a run.
"""

import atexit
import contextlib
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa

from vernacular import results
from vernacular.config.dependencies import inference_spec, model_spec, server_spec
from vernacular.config.load import load as load_config
from vernacular.core import artifacts, validate
from vernacular.core.errors import ConfigError, ModelError, UserError, format_count, writing
from vernacular.core.fingerprint import fingerprint
from vernacular.core.library_errors import wrap_tokenizer_panics
from vernacular.core.metadata import INFILLING, RequestsMetadata
from vernacular.core.model_record import ModelRecord
from vernacular.core.paths import WORKFLOW, user_cache
from vernacular.data.columns import replace_surrogates
from vernacular.inference.engine import Engine, engine_of
from vernacular.inference.job.work import exclusion
from vernacular.inference.schema import output_schema
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.protocols.build import build, inference_metadata
from vernacular.protocols.evaluate import evaluate
from vernacular.protocols.request_rows import RequestSettings, generation_requests, turn
from vernacular.protocols.schema import REQUESTS
from vernacular.stages.common import inference_record
from vernacular.stages.fetch import FetchModel
from vernacular.stages.fetch import model as fetch_model
from vernacular.stages.server import Server, server
from vernacular.types import Item

_ORIGIN = "vernacular.load"
_ANY = {"task": "cola", "languages": ["gl"]}  # an evaluation, which every config has
_MAIN = {"acceptability": "surprisal", "last_word": "surprisal", "minimal_pair": "difference"}  # also without any value
_LABELS = ("label", "fold")  # of sentences, which a notebook does not judge
_OF_ADAPTERS = ("allow_pickle", "allow_base_mismatch")


def load(source, *, adapter=None, threads: int | None = None, resources=None, **settings) -> "Model":
    """Load a model; it holds its memory until `close`, or to the end of a `with` block.

    Args:
        source: As in the config: a path, a Hub ID with or without @revision, package:NAME, or the address of a server.
        adapter: Path or Hub ID of a PEFT adapter on it; of a GGUF file, path of a LoRA adapter in GGUF.
        threads: Of the CPU; None: unchanged.
        resources: Directory for the record of the model, and for weights that are converted once, as in a run;
            None: vernacular/ in the cache directory of the user.
        settings: Keys of a model in the config: dtype, bos, chat, device, quantization, … (docs/models.md).

    Raises:
        ConfigError: A setting is unknown or invalid.
        ModelError: The model cannot be found or loaded.
    """
    models = {"model": {"source": str(source), **settings}}
    if adapter is not None:
        models["model"].pop("allow_base_mismatch", None)
        models["adapter"] = {"base": "model", "adapter": str(adapter)}
        models["adapter"] |= {key: settings[key] for key in _OF_ADAPTERS if key in settings}
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise UserError(f"threads: expected an integer of at least 1, got {threads!r}.")
    config = load_config([], {"models": models, "evaluations": [_ANY]}, origin=_ORIGIN)
    if list(config.models) != list(models):
        raise ConfigError(f"{_ORIGIN}: expected one model, got a series. Load one of its checkpoints.")
    if resources is None:
        resources = user_cache()
    subdirectory = str(Path(resources, "notebook", fingerprint(str(source))[:12]))
    config = config.with_directories(lambda _: subdirectory)
    with writing(directory := Path(subdirectory, "models")):
        directory.mkdir(parents=True, exist_ok=True)
    spec, records = inference_spec(config, list(models)), []
    for name in models:
        path = directory / f"{name}.json"
        if name in config.servers:
            server(Server(spec=server_spec(config, name), out=path))
        else:
            fetch_model(FetchModel(spec=model_spec(config, name), base=directory / "model.json", out=path))
        records.append(inference_record(path, spec))
        if reason := records[-1].unavailable:
            raise ModelError(reason)
    with contextlib.ExitStack() as stack:
        engine = engine_of(records[0])(records[0], threads=threads)
        stack.enter_context(engine.model(records[-1]))
        return Model(engine, records[-1], stack.pop_all())


class Model:
    """A loaded model.

    The rows of a DataFrame are in the order of the texts, and numbered in `item_id` from 0. A text that could not be
    scored, or only in part, has the reason in `flag_text`, and no value. `attrs` of a DataFrame has the metadata of the
    outputs: strategy and fallbacks of the engine, counters of tokens.
    """

    def __init__(self, engine: Engine, record: ModelRecord, resources: contextlib.ExitStack):
        self.record = record
        self._engine, self._resources = engine, resources
        atexit.register(self.close)  # before the modules that it needs are gone

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Release the memory of the model."""
        self._engine = None
        self._resources.close()
        atexit.unregister(self.close)

    def __repr__(self) -> str:
        source = f"{self.record.adapter.source} on " if self.record.adapter else ""
        return f"<vernacular model: {source}{self.record.source}, {self.record.architecture}, {self.record.kind}>"

    def surprisal(self, texts: Iterable[str], *, per: str = "token") -> pd.DataFrame:
        """Return the surprisal of texts from their first word, in nats: a row per token, or with per="text" per text.

        Columns per token are those of `vernacular.results.tokens`; per text: `text`, and those of `results.items` for
        the protocol acceptability (surprisal, surprisal_token, surprisal_byte, bits, …).
        """
        columns = {"text": _texts("texts", texts)}
        # texts are not judged; only those that are labeled as acceptable have bits
        items = [_item(n, context=text, extra={"label": "1"}) for n, text in enumerate(columns["text"])]
        return self._scored("acceptability", items, columns, "token" if per == "token" else _check(per, "text"))

    def score(
        self, contexts: Iterable[str] | str, continuations: Iterable[str], *, language: str = "en", per: str = "pair"
    ) -> pd.DataFrame:
        """Return the surprisal of continuations, each after its context, in nats: a row per pair, or per="token".

        Columns per pair: `context`, `continuation`, and those of `results.items` for the protocol last_word. A space
        stands between the two, unless `language` is written without spaces. One context may have all continuations.
        """
        columns = _equally_long(contexts=contexts, continuations=continuations)
        items = [_item(n, context=left, target=right) for n, (left, right) in enumerate(zip(*columns, strict=True))]
        columns = dict(zip(("context", "continuation"), columns, strict=True))
        return self._scored("last_word", items, columns, _check(per, "pair"), language=language)

    def compare(
        self,
        good: Iterable[str],
        bad: Iterable[str],
        *,
        contexts: Iterable[str] | str | None = None,
        language: str = "en",
        per: str = "pair",
    ) -> pd.DataFrame:
        """Return whether each good text is more probable than the bad one: a row per pair, or with per="token".

        Columns per pair: `good`, `bad`, `context` if there are contexts, and those of `results.items` for the protocol
        minimal_pair (accuracy, difference in nats, surprisal_good, …).
        """
        columns = _equally_long(good=good, bad=bad, **({} if contexts is None else {"contexts": contexts}))
        columns = dict(zip(("good", "bad", "context"), columns, strict=False))
        left = columns.get("context") or [""] * len(columns["good"])
        pairs = zip(left, columns["good"], columns["bad"], strict=True)
        items = [_item(n, context=context, choices=choices, gold=[0]) for n, (context, *choices) in enumerate(pairs)]
        return self._scored("minimal_pair", items, columns, _check(per, "pair"), language=language)

    def generate(
        self,
        prompts: Iterable[str],
        *,
        max_new_tokens: int = 64,
        stop: Iterable[str] = (),
        samples: int = 1,
        seed: int = 0,
        language: str | None = None,
        **decoding,
    ) -> pd.DataFrame:
        """Return generated texts, greedy by default: a row per prompt and sample.

        A prompt is the user's turn of a chat if the model has a chat template, unless it was loaded with chat=False.

        Args:
            max_new_tokens: Of the answer.
            stop: Texts before which the output ends.
            samples: Per prompt, numbered in `sample` from 0.
            seed: Of samples.
            language: Of prompts and texts, for models with tokens of languages (NLLB); None: as in their files.
            decoding: temperature, top_p and other keys of `gen_kwargs` (docs/models.md).
        """
        prompts, stop = _texts("prompts", prompts), _texts("stop", stop, may_be_empty=True)
        options = {"repeats": samples} | ({"gen_kwargs": decoding} if decoding else {})
        validate.check(options | {"max_new_tokens": max_new_tokens, "seed": seed}, {}, _GENERATION, "generate")
        _check_language("und" if language is None else language)
        settings = RequestSettings("", "und", seed, "default", options)
        items = [_item(number, context=prompt) for number, prompt in enumerate(prompts)]
        rows = [
            row
            for item in items
            for row in generation_requests(
                item,
                item["context"],
                settings=settings,
                messages=[turn("user", item["context"])],
                stop=stop,
                max_new_tokens=max_new_tokens,
            )
        ]
        outputs, metadata = self._compute(rows, "generation", has_turns=True, language=language)
        frame = outputs.drop_columns(["request_id", "role"]).to_pandas().rename(columns=results.FLAG_TEXT)
        frame.insert(1, "prompt", [prompts[int(name)] for name in frame["item_id"]])
        frame.insert(1, "sample", frame.groupby("item_id", sort=False).cumcount())
        return _numbered(frame, metadata)

    def _scored(
        self, protocol: str, items: list[Item], columns: dict[str, list[str]], per: str, *, language: str = "en"
    ) -> pd.DataFrame:
        """Return the tokens of items, or their values after the columns that describe them."""
        task = {"task": _ORIGIN, "item_type": "sentence", "protocols": [protocol]}
        fixed = {"shots": 0, "seed": 0, "style": "default", "options": {}}
        _check_language(language)
        rows, built = build(items, task, language=language, protocol=protocol, **fixed)
        known = {"language": language, "whole_texts": built.get("whole_texts", False)}
        outputs, metadata = self._compute(rows, protocol, **known)
        if per == "token":
            return _numbered(results.token_frame(outputs, rows), metadata)
        options = {"masked": self.record.kind == "masked", "fills_in": INFILLING in metadata["engine"].get("pll", ())}
        values, _ = evaluate(protocol, items, rows, outputs.to_pylist(), [], **options)
        frame = results.item_frame(pa.Table.from_pylist(values, schema=TASK_RESULTS.schema))
        frame = frame.drop(columns=["cluster_id", "category", "prompt", "choices", "gold", *_LABELS], errors="ignore")
        for position, (name, texts) in enumerate(columns.items(), start=1):
            frame.insert(position, name, texts)
        kept = ["flag_text", _MAIN[protocol]]
        frame = frame.drop(columns=frame.columns[frame.isna().all()].difference(kept))
        return _numbered(frame.reindex(columns=[*frame, *(name for name in kept if name not in frame)]), metadata)

    def _compute(self, rows: list[dict], protocol: str, **metadata) -> tuple[pa.Table, dict]:
        """Return the rows of the engine for these requests, and its metadata."""
        if self._engine is None:
            raise ModelError("the model is closed. Load it again.")
        evaluation = RequestsMetadata(protocol=protocol, **inference_metadata(protocol), **metadata)
        if outcome := exclusion(self.record, evaluation):
            raise ModelError(f"{self.record.source}: {outcome.reason}")
        with wrap_tokenizer_panics(self.record):
            self._engine.verify()
            requests = pa.Table.from_pylist(rows, schema=REQUESTS.schema)
            requests = artifacts.with_metadata(requests, REQUESTS, evaluation)
            outputs = self._engine.run(output_schema(evaluation), requests)
            self._engine.verify()
            return outputs


_CONFIG = validate.schema(WORKFLOW / "schemas" / "config.schema.yaml")
_COUNT = {"type": "integer", "minimum": 1}
_NAMES = {"repeats": _COUNT, "max_new_tokens": _COUNT, "seed": _COUNT | {"minimum": 0}}
_GENERATION = {"$defs": _CONFIG["$defs"], "properties": {**_NAMES, "gen_kwargs": {"$ref": "#/$defs/gen-kwargs"}}}


def _item(number: int, **fields) -> Item:
    empty = {"context": "", "question": "", "choices": [], "gold": [], "target": None, "extra": None}
    fixed = {"few_shot": False, "cluster_id": None, "category": None, "source_row": number, "repeats": None}
    return {"item_id": str(number)} | empty | fixed | fields


def _numbered(frame: pd.DataFrame, metadata: dict) -> pd.DataFrame:
    frame["item_id"] = frame["item_id"].astype(int)
    frame.attrs |= {name: metadata[name] for name in ("engine", "counters") if name in metadata}
    return frame


def _texts(name: str, texts: Iterable[str] | str, *, may_be_empty: bool = False) -> list[str]:
    if not isinstance(texts, Iterable):
        raise UserError(f"{name}: expected texts, got {texts!r}.")
    texts = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"{name}[{number}]: expected text, got {text!r:.60}.")
    if not texts and not may_be_empty:
        raise UserError(f"{name}: expected at least one text, got none.")
    return replace_surrogates(texts)


def _equally_long(**columns) -> list[list[str]]:
    """Return lists of texts; a single text of contexts is repeated."""
    lists = {name: _texts(name, texts) for name, texts in columns.items()}
    longest = max(map(len, lists.values()))
    if isinstance(columns.get("contexts"), str):
        lists["contexts"] *= longest
    for name, texts in lists.items():
        if len(texts) != longest:
            raise UserError(f"{name}: expected {format_count(longest, 'text')}, got {len(texts)}.")
    return list(lists.values())


def _check_language(language: str) -> None:
    if not isinstance(language, str) or not language:
        raise UserError(f'language: expected a code such as "gl", got {language or repr(language)}.')


def _check(per: str, unit: str) -> str:
    if per not in ("token", unit):
        raise UserError(f'per: expected "token" or "{unit}", got "{per}".')
    return per
