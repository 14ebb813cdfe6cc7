"""Broken, unusual or malicious models: messages of the code that fetches, loads and evaluates them.

Each case is a tiny checkpoint damaged on disk. The model step or the inference job rejects it with a one-line message,
or it is evaluated and the failure is flagged instead of scored.
"""

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import torch
import transformers as tf
from support import tiny
from support.damaged import edit_weights, replace_file, scale_weight, set_json_keys, split_pattern, truncate_weights
from support.messages import assert_states
from tokenizers import processors
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import fingerprint
from vernacular.inference.job.run import run_group
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.protocols.schema import REQUESTS
from vernacular.stages.collect import write_outputs

NAN = ("error:", "NaN")
ALL_NAN = ("model m", "NaN", " all ", "weights")
LONG = "O gato dorme no tellado e a cadela ladra na rúa. " * 6
TEXTS = [("A casa é grande", 7, 15), (LONG + "Si", len(LONG), len(LONG) + 2), ("A choiva cae", 2, 12)]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Save a Llama and a BERT model, and requests files of kinds score and generate."""
    directory = tmp_path_factory.mktemp("whole")
    for arch in ("llama", "bert"):
        tiny.save(arch, directory / arch)
    for name, table in (("s.options", tiny.score_requests(TEXTS)), ("g.generation", generate_requests())):
        protocol = name.partition(".")[2]
        metadata = {
            "protocol": protocol,
            "request_kind": "generate" if protocol == "generation" else "score",
            "causal_only": protocol == "generation",
            "fingerprint": name,
        }
        artifacts.write(directory / f"{name}.parquet", REQUESTS, table, metadata)
    return directory


def generate_requests() -> pa.Table:
    rows = []
    for index in range(2):
        text = f"{index} Que come o gato?\nResposta:"
        content = {
            "kind": "generate", "prefix": "", "text": text, "span_start": None, "span_end": None, "extras": [],
            "messages": [{"role": "user", "content": text}], "few_shot_examples": [], "stop": ["\n"], "max_new_tokens": 4,
            "longest_target": None, "decoding": None,
        }  # fmt: skip
        rows.append({"request_id": fingerprint(content), "item_id": f"i{index}", "role": "response", **content})
    return pa.Table.from_pylist(rows, schema=REQUESTS.schema)


@pytest.fixture
def evaluate(checkpoints, tmp_path):
    """Return a function that damages a copy and evaluates it: evaluation -> rows, or why it is unavailable."""

    def evaluate_spoiled(spoil, *, arch="llama", allow_pickle=False, kind="auto", **settings) -> dict:
        shutil.copytree(checkpoints / arch, tmp_path / "model")
        spoil(tmp_path / "model")
        record = resolve("m", str(tmp_path / "model"), tmp_path / "c", allow_pickle=allow_pickle, kind=kind)
        record |= {"dtype": "float32", "device": "cpu", "chat": "auto", "allow_pickle": allow_pickle, **settings}
        paths = {path.stem: path for path in checkpoints.glob("*.parquet")}
        _, failed = run_group([record], paths, tmp_path / "store", threads=1)
        write_outputs(record, paths, tmp_path / "m", tmp_path / "store", failed=failed["m"])
        outputs = {}
        for path in (tmp_path / "m").glob("*/*.parquet"):
            metadata = artifacts.metadata(path)
            rows = artifacts.read(path, {"scores": SCORES, "generations": GENERATIONS}[metadata["kind"]])
            outputs[path.stem[0]] = metadata["outcome"].reason or rows.to_pylist()
        return outputs

    return evaluate_spoiled


def shard_weights(spoil_shards):
    def spoil(directory: Path):
        model = tf.AutoModelForCausalLM.from_pretrained(directory)
        (directory / "model.safetensors").unlink()
        model.save_pretrained(directory, max_shard_size="50KB")
        spoil_shards(directory)

    return spoil


def replace_model(model):
    """Replace the model in a directory; its tokenizer stays."""

    def spoil(directory: Path):
        (directory / "model.safetensors").unlink()
        model().save_pretrained(directory)

    return spoil


def t5():
    return tf.T5ForConditionalGeneration(
        tf.T5Config(vocab_size=60, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0)
    )


def headless_base():
    return tf.BertModel(tiny.CONFIGS["bert"](300))


def with_template(template: str | None):
    def spoil(directory: Path):
        tokenizer = tf.AutoTokenizer.from_pretrained(directory)
        tokenizer.chat_template = template
        tokenizer.save_pretrained(directory)

    return spoil


def tokenizer_with(**parts):
    """Set parts of tokenizer.json."""
    return lambda directory: set_json_keys("tokenizer.json", **parts)(directory)


NO_MAP = {"type": "Precompiled", "precompiled_charsmap": None}

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"

INVALID_CHECKPOINTS = [
    # incomplete download or clone
    (replace_file("config.json", ""), {}, ("/config.json", "JSON")),
    (replace_file("config.json", b"\xff\xfe\x00"), {}, ("/config.json", "JSON")),
    (replace_file("config.json", "[]"), {}, ("/config.json", "transformers model")),
    (set_json_keys("config.json", architectures=[3]), {}, ("/config.json", "transformers model")),
    (truncate_weights(-100), {}, ("/model.safetensors", "complete safetensors")),
    (truncate_weights(0), {}, ("/model.safetensors", "complete safetensors")),
    (replace_file("model.safetensors", LFS), {}, ("/model.safetensors", "Git LFS", "git lfs pull")),
    (replace_file("tokenizer.json", LFS), {}, ("/tokenizer.json", "Git LFS", "git lfs pull")),
    (
        shard_weights(replace_file("model-00002-of-00004.safetensors", None)), {},
        ("/model-00002-of-00004.safetensors", " 4 files", "not found"),
    ),
    (shard_weights(replace_file("model.safetensors.index.json", "{")), {}, ("/model.safetensors.index.json", "JSON")),
    (
        shard_weights(replace_file("model.safetensors.index.json", "[1]")), {},
        ("/model.safetensors.index.json", "weight_map"),
    ),
    (
        shard_weights(replace_file("model.safetensors.index.json", None)), {},
        ("model-00001-of-00004.safetensors", "neither", "model.safetensors.index.json"),
    ),
    # unsupported model
    (replace_model(t5), {"kind": "causal"}, ("model m", "kind", "encoder-decoder: t5")),
    (replace_model(headless_base), {"arch": "bert"}, ("model m", "BertModel", "causal or masked", "kind:")),
    # tokenizers
    (
        lambda directory: [path.unlink() for path in directory.glob("tokenizer*")], {},
        ("no tokenizer", "tokenizer.json"),
    ),
    (replace_file("tokenizer.json", "{"), {}, ("/tokenizer.json", "JSON")),
    (replace_file("tokenizer.json", "{}"), {}, ("/tokenizer.json", "not a tokenizer")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "settings", "parts"), INVALID_CHECKPOINTS, ids=[" ".join(parts) for *_, parts in INVALID_CHECKPOINTS]
)
def test_invalid_checkpoint_raises_in_model_step(evaluate, spoil, settings, parts):
    with pytest.raises(ModelError) as error:
        evaluate(spoil, **settings)
    assert_states(error.value, *parts)
    assert "\n" not in str(error.value)


HEAD, MIDDLE, UP = "lm_head.weight", "model.layers.1.mlp.down_proj.weight", "model.layers.1.mlp.up_proj.weight"

TOKENIZER_UNLOADABLE = ("tokenizer", "{directory}", "loaded")
UNLOADABLE_MODELS = [
    (edit_weights(lambda w: w.pop(HEAD)), {}, (" 1 of", "LlamaForCausalLM", "not found", "{directory}", HEAD)),
    (edit_weights(lambda w: w.pop(UP)), {}, (" 1 of", "LlamaForCausalLM", "not found", "{directory}", UP)),
    (set_json_keys("config.json", num_hidden_layers=9), {}, (" 54 of", "LlamaForCausalLM", "not found")),
    (set_json_keys("config.json", model_type="gpt2"), {}, (" 40 of", "GPT2LMHeadModel", "not found")),
    (set_json_keys("config.json", vocab_size=100), {}, (" 2 of", "{directory}", "config.json", HEAD, "100 x 32")),
    (set_json_keys("config.json", model_type="llamma"), {}, ("{directory}", "`llamma`")),
    (set_json_keys("config.json", model_type=None), {}, ("{directory}", "`model_type` key")),
    (set_json_keys("config.json", hidden_size="32"), {}, ("{directory}", "'hidden_size'")),
    (set_json_keys("config.json", num_attention_heads=0), {}, ("{directory}", "ZeroDivisionError")),
    (replace_model(headless_base), {"arch": "bert", "kind": "masked"}, (" 6 of", "BertForMaskedLM", "not found")),
    (lambda directory: None, {"kind": "masked"}, ("{directory}", "LlamaConfig", "AutoModelForMaskedLM")),
    (set_json_keys("tokenizer_config.json", model_max_length="512"), {}, TOKENIZER_UNLOADABLE),
    (replace_file("tokenizer_config.json", "[]"), {}, TOKENIZER_UNLOADABLE),
    (tokenizer_with(normalizer=NO_MAP), {}, (*TOKENIZER_UNLOADABLE, "panic", "Precompiled")),
    (split_pattern("("), {}, (*TOKENIZER_UNLOADABLE, "Oniguruma")),
    (lambda directory: None, {"chat": True}, ("model m", "chat is true", "chat template", "chat: auto")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "settings", "parts"), UNLOADABLE_MODELS, ids=[" ".join(parts) for *_, parts in UNLOADABLE_MODELS]
)
def test_unloadable_model_is_unavailable_for_every_evaluation(evaluate, tmp_path, spoil, settings, parts):
    outputs = evaluate(spoil, **settings)
    for reason in {outputs[evaluation] for evaluation in outputs if isinstance(outputs[evaluation], str)}:
        if "requires a causal model" not in reason:
            assert_states(reason, *(part.replace("{directory}", str(tmp_path / "model")) for part in parts))
        assert "\n" not in reason
    assert isinstance(outputs["s"], str)


def test_tokenizer_panic_fails_only_its_evaluation(evaluate, tmp_path):
    # backtracks over every split of the words before a full stop; the prompts to generate from have few of them
    outputs = evaluate(split_pattern(r"([\p{L}▁]+)+$"))
    directory = str(tmp_path / "model")
    assert_states(outputs["s"], "model m", "tokenizer", directory, "used", "panic", "retry-limit-in-match")
    assert "\n" not in outputs["s"]
    assert [row["flags"] for row in outputs["g"]] == [None] * 2


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no system turns') }}", "no system turns"),
        ("{% for %}", "Expected an expression"),
        ("{{ messages[0].nothing.more }}", "'nothing'"),
        ("{{ messages + 3 }}", "concatenate"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "maximum recursion"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "0.2 seconds"),
        ("{{ 7 ** (9 ** 9) }}", "0.2 seconds"),  # while it is compiled
    ],
)
def test_failing_chat_template_fails_only_chat_evaluations(evaluate, low_limits, template, message):
    if "seconds" in message:
        low_limits("inference.model.rendering", TIME_LIMIT=0.2)
    outputs = evaluate(with_template(template))
    assert_states(outputs["g"], "model m", "chat template", message)
    assert "\n" not in outputs["g"]
    assert [row["flags"] for row in outputs["s"]] == [None] * 3


@pytest.mark.parametrize(
    ("spoil", "settings", "scored", "generated"),
    [
        (scale_weight(HEAD, float("nan")), {}, ALL_NAN, [NAN] * 2),
        (scale_weight(HEAD, 1e6), {"dtype": "float16"}, ALL_NAN, [NAN] * 2),
        (scale_weight(MIDDLE, 1e7), {"dtype": "float16"}, ALL_NAN, [NAN] * 2),
        (scale_weight("cls.predictions.bias", float("nan")), {"arch": "bert"}, ALL_NAN, None),
        (lambda directory: None, {"max_length": 64}, [None, ("truncated:", "185 tokens"), None], [None] * 2),
        (
            lambda directory: None, {"max_length": 4},
            [("error:", "span", "4 tokens", "8"), ("truncated:",), ("error:", "span", "4 tokens")],
            [("error:", "4 tokens", "26", "4")] * 2,
        ),
        (with_template("{# nothing #}"), {}, [None] * 3, [("error:", "empty")] * 2),
    ],
)  # fmt: skip
def test_invalid_outputs_are_flagged_or_rejected(evaluate, spoil, settings, scored, generated):
    outputs = evaluate(spoil, **settings)
    if isinstance(scored, tuple):
        assert_states(outputs["s"], *scored)
    else:
        for row, parts in zip(outputs["s"], scored, strict=True):
            check_flags(row["flags"], parts)
            assert (row["logprobs"] is None) == bool(parts and parts[0] == "error:")
    if generated is not None:
        for row, parts in zip(outputs["g"], generated, strict=True):
            check_flags(row["flags"], parts)
            assert (row["raw_output"] is None) == bool(parts)


def check_flags(flags: str | None, parts: tuple[str, ...] | None) -> None:
    """Check that a row's flags state all parts; None if it has no flags."""
    if parts is None:
        assert flags is None
    else:
        assert flags.startswith(parts[0])
        assert_states(flags, *parts)


def test_nan_token_affects_only_texts_containing_it(evaluate, checkpoints):
    tokenizer = tf.AutoTokenizer.from_pretrained(checkpoints / "llama")
    [*_, nan_id] = tokenizer("A casa é grande")["input_ids"][:-1]  # the last token is not computed
    assert nan_id not in tokenizer("A choiva cae")["input_ids"]
    outputs = evaluate(edit_weights(lambda w: w["model.embed_tokens.weight"].__setitem__(nan_id, float("nan"))))
    expected_logprobs = {row["item_id"]: row["logprobs"] for row in tiny_scores(checkpoints)}
    flags = [row["flags"] for row in outputs["s"]]
    check_flags(flags[0], NAN)
    assert flags[2] is None
    assert outputs["s"][2]["logprobs"] == pytest.approx(expected_logprobs["i2"], abs=1e-4)


def tiny_scores(checkpoints) -> list[dict]:
    from support.engines import score
    from vernacular.inference.model.load import load

    record = tiny.record("llama", directory=str(checkpoints / "llama"))
    return score(load(record), tiny.score_requests(TEXTS))[0].to_pylist()


def test_tokens_outside_model_vocabulary_are_flagged(evaluate):
    def add_tokens(directory: Path):
        tokenizer = tf.AutoTokenizer.from_pretrained(directory)
        tokenizer.add_tokens(["casa", "gato"])
        tokenizer.save_pretrained(directory)

    outputs = evaluate(add_tokens)
    *outside, inside = outputs["s"]
    assert inside["flags"] is None
    for row in (*outside, *outputs["g"]):
        check_flags(row["flags"], ("error:", "token", "vocabulary"))


@pytest.mark.parametrize(
    ("parts", "policy", "leading_ids"),
    [
        (["<s>", "<s>", "$A"], "never", None),
        (["<s>", "<s>", "$A"], "always", [1, 1]),
        (["<s>", "$A", "</s>"], "auto", [1]),
        (["$A"], "auto", None),
        (["$A"], "always", [1]),
    ],
)
def test_special_tokens_follow_tokenizer_without_closing_token(evaluate, checkpoints, parts, policy, leading_ids):
    def set_template(directory: Path):
        tokenizer = tf.AutoTokenizer.from_pretrained(directory)
        special = [(name, tokenizer.convert_tokens_to_ids(name)) for name in set(parts) - {"$A"}]
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=parts, special_tokens=special)
        tokenizer.save_pretrained(directory)

    outputs = evaluate(set_template, bos=policy)
    n_plain_tokens = len(
        tf.AutoTokenizer.from_pretrained(checkpoints / "llama")("A casa", add_special_tokens=False)["input_ids"]
    )
    # includes the space before "é"
    assert outputs["s"][0]["n_prompt_tokens"] == n_plain_tokens + 1 + len(leading_ids or [])
    assert outputs["g"][0]["flags"] is None


@pytest.mark.parametrize("limit", ["Infinity", "1e999", '{"__float__": "Infinity"}'])
def test_infinity_in_config_is_accepted(evaluate, limit):
    """Infinity as written by transformers 4 for Mamba 2, as an overflowing number, and as written by transformers 5."""
    sizes = {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 16, "n_groups": 1}

    def mamba(directory: Path):
        tokenizer = tf.AutoTokenizer.from_pretrained(directory)
        torch.manual_seed(0)
        config = tf.Mamba2Config(
            vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=2, initializer_range=0.3, **sizes
        )
        shutil.rmtree(directory)
        tf.Mamba2ForCausalLM(config).save_pretrained(directory)
        tokenizer.save_pretrained(directory)
        text = (directory / "config.json").read_text()
        config_text = re.sub(r'\{\s*"__float__": "Infinity"\s*\}', limit, text)
        assert limit in re.sub(r"\s+", " ", config_text).replace("{ ", "{").replace(" }", "}")
        (directory / "config.json").write_text(config_text)

    outputs = evaluate(mamba)
    assert [row["flags"] for row in outputs["s"]] == [None] * 3
    assert all(value < 0 for row in outputs["s"] for value in row["logprobs"])


MARKER_CODE = "from pathlib import Path; Path({marker!r}).write_text('ran')\n"
CUSTOM_CODE = """from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class C(LlamaConfig): model_type = "odd"
class M(LlamaForCausalLM): config_class = C
class T(PreTrainedTokenizerFast): pass
"""


@pytest.mark.parametrize(
    ("kind", "own_tokenizer", "message"),
    [("odd", False, "custom code"), ("odd", True, "custom code"), ("llama", False, None)],
)
def test_custom_code_requires_trust_remote_code(evaluate, tmp_path, monkeypatch, kind, own_tokenizer, message):
    marker = tmp_path / "mark"
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # no confirmation is requested

    def add_code(directory: Path):
        (directory / "own.py").write_text(MARKER_CODE.format(marker=str(marker)) + CUSTOM_CODE)
        classes = {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}
        set_json_keys("config.json", model_type=kind, auto_map=classes)(directory)
        if own_tokenizer:
            set_json_keys("tokenizer_config.json", auto_map={"AutoTokenizer": [None, "own.T"]}, tokenizer_class="T")(
                directory
            )

    outputs = evaluate(add_code)
    assert not marker.exists()
    if message:
        assert message in outputs["s"]
        assert "trust_remote_code: true" in outputs["s"]
    else:
        assert [row["flags"] for row in outputs["s"]] == [None] * 3, "known models run with the code of transformers"
    shutil.rmtree(tmp_path / "model")
    assert isinstance(evaluate(add_code, trust_remote_code=True)["s"], list)
    assert marker.exists()


class Payload:
    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


def test_pickle_with_code_is_never_executed(evaluate, tmp_path):
    def add_code(directory: Path):
        (directory / "model.safetensors").unlink()
        torch.save({"a": Payload(tmp_path / "mark")}, directory / "pytorch_model.bin")

    with pytest.raises(ModelError) as raised:
        evaluate(add_code)
    # the complete sentence, once
    assert str(raised.value) == (
        f"model m: {tmp_path / 'model'} contains only pickled weights, which can run code when they are loaded. "
        "Set allow_pickle: true for this model if you trust it, or convert it to safetensors."
    )
    shutil.rmtree(tmp_path / "model")
    assert_states(evaluate(add_code, allow_pickle=True)["s"], "model m", "pickle", "more than weights")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "keys",
    [
        {"do_sample": True, "temperature": 9.0, "top_k": 1, "repetition_penalty": 5.0, "num_beams": 7, "max_length": 3},
        {"temperature": "hot", "eos_token_id": "</s>"},
        {"eos_token_id": [[1]], "num_beams": -3},
        {"eos_token_id": None},
        {"eos_token_id": [2, 99999]},
    ],
)
def test_generation_config_does_not_change_greedy_text(evaluate, checkpoints, keys, tmp_path):
    expected_texts = [row["raw_output"] for row in evaluate(lambda directory: None)["g"]]
    shutil.rmtree(tmp_path / "model")
    shutil.rmtree(tmp_path / "store")
    outputs = evaluate(lambda directory: (directory / "generation_config.json").write_text(json.dumps(keys)))
    assert [row["raw_output"] for row in outputs["g"]] == expected_texts


def test_unused_weights_are_counted_in_metadata(evaluate, tmp_path):
    evaluate(edit_weights(lambda w: w.update({"model.layers.7.extra": torch.zeros(3)})))
    [path] = (tmp_path / "m" / "scores").glob("*.parquet")
    assert artifacts.metadata(path)["model"]["unused_weights"] == {"count": 1, "first": "model.layers.7.extra"}
