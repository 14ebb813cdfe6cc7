"""Models that are broken, odd or hostile, by the code that fetches, loads and asks them: what a person is told of each.

A case is a tiny checkpoint spoilt on disk. It is refused by the model step or by the job that asks it, in one line; or
it is asked, and what went wrong is a flag, never a number.
"""

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from support import tiny
from tokenizers import processors
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import fingerprint
from vernacular.inference.job.collect import lay_out
from vernacular.inference.job.run import run_group
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.protocols.schema import REQUESTS

NAN = "error: the model returned NaN"
NO_NUMBERS = "the model returns NaN for all tested tokens. Its weights are damaged, or too large"
BEYOND = "error: a token is outside the model's vocabulary"
LONG = "O gato dorme no tellado e a cadela ladra na rúa. " * 6
TEXTS = [("A casa é grande", 7, 15), (LONG + "Si", len(LONG), len(LONG) + 2), ("A choiva cae", 2, 12)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A llama and a bert on disk, and requests to score and to generate."""
    folder = tmp_path_factory.mktemp("whole")
    for arch in ("llama", "bert"):
        tiny.save(arch, folder / arch)
    for name, table in (("s.options", tiny.score_requests(TEXTS)), ("g.generation", to_generate())):
        protocol = name.partition(".")[2]
        note = {
            "protocol": protocol,
            "request_kind": "generate" if protocol == "generation" else "score",
            "causal_only": protocol == "generation",
            "fingerprint": name,
        }
        artifacts.write(folder / f"{name}.parquet", REQUESTS, table, note)
    return folder


def to_generate() -> pa.Table:
    rows = []
    for number in range(2):
        text = f"{number} Que come o gato?\nResposta:"
        content = {
            "kind": "generate", "prefix": "", "text": text, "span_start": None, "span_end": None, "extras": [],
            "messages": [{"role": "user", "content": text}], "few_shot_examples": [], "stop": ["\n"], "max_new_tokens": 4,
            "longest_target": None, "decoding": None,
        }  # fmt: skip
        rows.append({"request_id": fingerprint(content), "item_id": f"i{number}", "role": "response", **content})
    return pa.Table.from_pylist(rows, schema=REQUESTS.schema)


@pytest.fixture
def ask(whole, tmp_path):
    """What becomes of a spoilt copy: evaluation -> its rows, or the sentence that says why there are none."""

    def asked(spoil, *, arch="llama", allow_pickle=False, kind="auto", **settings) -> dict:
        shutil.copytree(whole / arch, tmp_path / "model")
        spoil(tmp_path / "model")
        record = resolve("m", str(tmp_path / "model"), tmp_path / "c", allow_pickle=allow_pickle, kind=kind)
        record |= {"dtype": "float32", "device": "cpu", "chat": "auto", "allow_pickle": allow_pickle, **settings}
        paths = {path.stem: path for path in whole.glob("*.parquet")}
        _, failed = run_group([record], paths, tmp_path / "store", threads=1)
        lay_out(record, paths, tmp_path / "m", tmp_path / "store", failed=failed["m"])
        found = {}
        for path in (tmp_path / "m").glob("*/*.parquet"):
            note = artifacts.metadata(path)
            rows = artifacts.read(path, {"scores": SCORES, "generations": GENERATIONS}[note["kind"]])
            found[path.stem[0]] = note.get("unavailable") or rows.to_pylist()
        return found

    return asked


def written(name: str, **keys):
    """Set keys of a JSON file; None takes one away."""

    def spoil(folder: Path):
        path = folder / name
        content = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({k: v for k, v in {**content, **keys}.items() if v is not None}))

    return spoil


def content(name: str, text: str | bytes | None):
    """Put something else in a file's place; None deletes it."""

    def spoil(folder: Path):
        (folder / name).unlink(missing_ok=True)
        if text is not None:
            (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)

    return spoil


def weights(change):
    def spoil(folder: Path):
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return spoil


def times(name: str, factor: float):
    return weights(lambda tensors: tensors.update({name: tensors[name] * factor}))


def cut(count: int):
    return lambda folder: content("model.safetensors", (folder / "model.safetensors").read_bytes()[:count])(folder)


def sharded(then):
    def spoil(folder: Path):
        model = tf.AutoModelForCausalLM.from_pretrained(folder)
        (folder / "model.safetensors").unlink()
        model.save_pretrained(folder, max_shard_size="50KB")
        then(folder)

    return spoil


def remade(model):
    """Another model in the same folder, with the tokenizer that was there."""

    def spoil(folder: Path):
        (folder / "model.safetensors").unlink()
        model().save_pretrained(folder)

    return spoil


def t5():
    return tf.T5ForConditionalGeneration(
        tf.T5Config(vocab_size=60, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0)
    )


def base_alone():
    return tf.BertModel(tiny.CONFIGS["bert"](300))


def with_template(template: str | None):
    def spoil(folder: Path):
        tokenizer = tf.AutoTokenizer.from_pretrained(folder)
        tokenizer.chat_template = template
        tokenizer.save_pretrained(folder)

    return spoil


def tokenizer_with(**parts):
    """Set parts of tokenizer.json."""
    return lambda folder: written("tokenizer.json", **parts)(folder)


def splitting(regex: str):
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return tokenizer_with(pre_tokenizer=split)


NO_MAP = {"type": "Precompiled", "precompiled_charsmap": None}
PANIC = "panic in a Rust library"

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"

REFUSED = [
    # what a broken download or clone leaves
    (content("config.json", ""), {}, "config.json is not valid JSON; the download may be incomplete"),
    (content("config.json", b"\xff\xfe\x00"), {}, "config.json is not valid JSON"),
    (content("config.json", "[]"), {}, "config.json is not the config of a transformers model"),
    (written("config.json", architectures=[3]), {}, "config.json is not the config of a transformers model"),
    (cut(-100), {}, "model.safetensors is not a complete safetensors file"),
    (cut(0), {}, "model.safetensors is not a complete safetensors file"),
    (content("model.safetensors", LFS), {}, "is a Git LFS pointer instead of the file itself. Run `git lfs pull`"),
    (content("tokenizer.json", LFS), {}, "is a Git LFS pointer instead of the file itself. Run `git lfs pull`"),
    (sharded(content("model-00002-of-00004.safetensors", None)), {}, "model-00002-of-00004.safetensors of the 4"),
    (sharded(content("model.safetensors.index.json", "{")), {}, "model.safetensors.index.json is not valid JSON"),
    (sharded(content("model.safetensors.index.json", "[1]")), {}, "has no valid weight_map"),
    (sharded(content("model.safetensors.index.json", None)), {}, "but neither model.safetensors nor model.safetens"),
    # no such model
    (remade(t5), {}, "expected a causal or masked model, got an encoder-decoder (t5)"),
    (remade(t5), {"kind": "causal"}, "got an encoder-decoder (t5)"),
    (remade(base_alone), {"arch": "bert"}, "(BertModel) does not determine whether it is causal or masked. Set kind:"),
    # tokenizers
    (lambda folder: [path.unlink() for path in folder.glob("tokenizer*")], {}, "no tokenizer (tokenizer.json or"),
    (content("tokenizer.json", "{"), {}, "tokenizer.json is not valid JSON"),
    (content("tokenizer.json", "{}"), {}, "tokenizer.json is not a tokenizer"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "given", "said"), REFUSED, ids=[said[:50] for *_, said in REFUSED])
def test_the_model_step_refuses_it_in_one_line(ask, spoil, given, said):
    with pytest.raises(ModelError) as error:
        ask(spoil, **given)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


HEAD, MIDDLE, UP = "lm_head.weight", "model.layers.1.mlp.down_proj.weight", "model.layers.1.mlp.up_proj.weight"

NEVER_ASKED = [
    (weights(lambda w: w.pop(HEAD)), {}, "1 of the weights of a LlamaForCausalLM not found in {folder} (lm_head"),
    (weights(lambda w: w.pop(UP)), {}, "1 of the weights of a LlamaForCausalLM"),
    (written("config.json", num_hidden_layers=9), {}, "54 of the weights"),
    (written("config.json", model_type="gpt2"), {}, "40 of the weights of a GPT2LMHeadModel"),
    (written("config.json", vocab_size=100), {}, "2 of the weights in {folder} do not match its config.json (lm"),
    (written("config.json", model_type="llamma"), {}, "model type `llamma`"),
    (written("config.json", model_type=None), {}, "Should have a `model_type` key in its config.json"),
    (written("config.json", hidden_size="32"), {}, "Validation error for field 'hidden_size'"),
    (written("config.json", num_attention_heads=0), {}, "ZeroDivisionError"),
    (remade(base_alone), {"arch": "bert", "kind": "masked"}, "6 of the weights of a BertForMaskedLM"),
    (lambda folder: None, {"arch": "bert", "kind": "causal"}, 'is a masked language model (BertForMaskedLM). Set kind: masked'),
    (lambda folder: None, {"kind": "masked"}, "Unrecognized configuration class"),
    (written("tokenizer_config.json", model_max_length="512"), {}, "the tokenizer in {folder} cannot be loaded"),
    (content("tokenizer_config.json", "[]"), {}, "the tokenizer in {folder} cannot be loaded"),
    (tokenizer_with(normalizer=NO_MAP), {}, f"the tokenizer in {{folder}} cannot be loaded: {PANIC}: Precompiled"),
    (splitting("("), {}, "the tokenizer in {folder} cannot be loaded: Oniguruma error"),
    (lambda folder: None, {"chat": True}, "chat is true, but its tokenizer has no chat template"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "given", "said"), NEVER_ASKED, ids=[said[:50] for *_, said in NEVER_ASKED])
def test_a_model_that_cannot_be_loaded_is_noted_in_one_line_for_every_evaluation(ask, tmp_path, spoil, given, said):
    found = ask(spoil, **given)
    for reason in {found[evaluation] for evaluation in found if isinstance(found[evaluation], str)}:
        assert said.replace("{folder}", str(tmp_path / "model")) in reason or "requires a causal model" in reason
        assert "\n" not in reason
    assert isinstance(found["s"], str)


def test_a_text_that_makes_the_tokenizer_panic_costs_its_evaluation_and_no_other(ask, tmp_path):
    # tries every way to split the words before a full stop, which are few in the prompts to generate from
    found = ask(splitting(r"([\p{L}▁]+)+$"))
    assert found["s"] == (
        f"model m: the tokenizer in {tmp_path / 'model'} cannot be used: {PANIC}: Onig: Regex search error: "
        "retry-limit-in-match over."
    )
    assert [row["flags"] for row in found["g"]] == [None] * 2


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('no system turns') }}", "chat template failed: no system turns"),
        ("{% for %}", "chat template failed: Expected an expression"),
        ("{{ messages[0].nothing.more }}", "chat template failed: 'dict object' has no attribute 'nothing'"),
        ("{{ messages + 3 }}", "chat template failed: can only concatenate"),
        ("{{ 1 / 0 }}", "chat template failed: division by zero"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "chat template failed: maximum recursion"),
        ("{{ ''.__class__.__mro__ }}", "is unsafe"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "did not finish within 0.2"),
        ("{{ 7 ** (9 ** 9) }}", "did not finish within 0.2"),  # while it is compiled
    ],
)
def test_a_template_that_fails_costs_the_evaluations_that_need_it(ask, monkeypatch, template, said):
    monkeypatch.setattr("vernacular.inference.model.rendering._SECONDS", 0.2)
    found = ask(with_template(template))
    assert said in found["g"]
    assert "\n" not in found["g"]
    assert [row["flags"] for row in found["s"]] == [None] * 3


@pytest.mark.parametrize(
    ("spoil", "given", "scored", "generated"),
    [
        (times(HEAD, float("nan")), {}, NO_NUMBERS, [NAN] * 2),
        (times(HEAD, 1e6), {"dtype": "float16"}, NO_NUMBERS, [NAN] * 2),
        (times(MIDDLE, 1e7), {"dtype": "float16"}, NO_NUMBERS, [NAN] * 2),
        (times("cls.predictions.bias", float("nan")), {"arch": "bert"}, NO_NUMBERS, None),
        (lambda folder: None, {"max_length": 64}, [None, "truncated: 185 tokens dropped", None], [None] * 2),
        (
            lambda folder: None, {"max_length": 4}, ["error: expected a span of at most 4 tokens, got 8", "truncated", "error: expected a span"],
            ["error: expected at most 4 tokens, got 20 of the prompt and 4 to generate"] * 2,
        ),
        (with_template("{# nothing #}"), {}, [None] * 3, ["error: the prompt is empty"] * 2),
    ],
)  # fmt: skip
def test_what_gives_no_number_is_flagged_or_refused_and_never_a_score(ask, spoil, given, scored, generated):
    found = ask(spoil, **given)
    if isinstance(scored, str):
        assert scored in found["s"]
    else:
        for row, flag in zip(found["s"], scored, strict=True):
            assert (row["flags"] or "").startswith(flag or "")
            assert (row["logprobs"] is None) == (flag or "").startswith("error")
    if generated is not None:
        flags = [row["flags"] for row in found["g"]]
        assert [bool(flag) for flag in flags] == [bool(flag) for flag in generated]
        assert [row["raw_output"] is None for row in found["g"]] == [bool(flag) for flag in generated]


def test_a_token_that_makes_nan_spoils_the_texts_it_stands_in_and_no_other(ask, whole):
    tokenizer = tf.AutoTokenizer.from_pretrained(whole / "llama")
    [*_, last] = tokenizer("A casa é grande")["input_ids"][:-1]  # the last is not fed
    assert last not in tokenizer("A choiva cae")["input_ids"]
    found = ask(weights(lambda w: w["model.embed_tokens.weight"].__setitem__(last, float("nan"))))
    healthy = {row["item_id"]: row["logprobs"] for row in tiny_scores(whole)}
    flags = [row["flags"] for row in found["s"]]
    assert flags[0] == NAN
    assert flags[2] is None
    assert found["s"][2]["logprobs"] == pytest.approx(healthy["i2"], abs=1e-4)


def tiny_scores(whole) -> list[dict]:
    from vernacular.inference.model.load import load
    from vernacular.inference.scoring.score import score

    record = tiny.record("llama", folder=str(whole / "llama"))
    return score(load(record), tiny.score_requests(TEXTS))[0].to_pylist()


def test_tokens_that_the_model_does_not_know_are_flagged(ask):
    def grown(folder: Path):
        tokenizer = tf.AutoTokenizer.from_pretrained(folder)
        tokenizer.add_tokens(["casa", "gato"])
        tokenizer.save_pretrained(folder)

    found = ask(grown)
    assert [row["flags"] for row in found["s"]] == [BEYOND, BEYOND, None]
    assert {row["flags"] for row in found["g"]} == {BEYOND}


@pytest.mark.parametrize(
    ("parts", "policy", "first"),
    [
        (["<s>", "<s>", "$A"], "never", None),
        (["<s>", "<s>", "$A"], "always", [1, 1]),
        (["<s>", "$A", "</s>"], "auto", [1]),
        (["$A"], "auto", None),
        (["$A"], "always", [1]),
    ],
)
def test_what_a_tokenizer_adds_is_followed_and_never_adds_a_closing_token(ask, whole, parts, policy, first):
    def around(folder: Path):
        tokenizer = tf.AutoTokenizer.from_pretrained(folder)
        special = [(name, tokenizer.convert_tokens_to_ids(name)) for name in set(parts) - {"$A"}]
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=parts, special_tokens=special)
        tokenizer.save_pretrained(folder)

    found = ask(around, bos=policy)
    bare = len(tf.AutoTokenizer.from_pretrained(whole / "llama")("A casa", add_special_tokens=False)["input_ids"])
    assert found["s"][0]["n_prompt_tokens"] == bare + 1 + len(first or [])  # the blank before "é" counts
    assert found["g"][0]["flags"] is None


@pytest.mark.parametrize("limit", ["Infinity", "1e999", '{"__float__": "Infinity"}'])
def test_infinity_in_a_config_is_a_number_of_it(ask, limit):
    """As transformers 4 wrote it for Mamba 2, as it reads a number beyond floats, and as transformers 5 writes it."""
    sizes = {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 16, "n_groups": 1}

    def mamba(folder: Path):
        tokenizer = tf.AutoTokenizer.from_pretrained(folder)
        torch.manual_seed(0)
        config = tf.Mamba2Config(
            vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=2, initializer_range=0.3, **sizes
        )
        shutil.rmtree(folder)
        tf.Mamba2ForCausalLM(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        text = (folder / "config.json").read_text()
        spelled = re.sub(r'\{\s*"__float__": "Infinity"\s*\}', limit, text)
        assert limit in re.sub(r"\s+", " ", spelled).replace("{ ", "{").replace(" }", "}")
        (folder / "config.json").write_text(spelled)

    found = ask(mamba)
    assert [row["flags"] for row in found["s"]] == [None] * 3
    assert all(value < 0 for row in found["s"] for value in row["logprobs"])


MARK = "from pathlib import Path; Path({mark!r}).write_text('ran')\n"
OWN = """from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class C(LlamaConfig): model_type = "odd"
class M(LlamaForCausalLM): config_class = C
class T(PreTrainedTokenizerFast): pass
"""


@pytest.mark.parametrize(
    ("kind", "own_tokenizer", "said"),
    [("odd", False, "custom code"), ("odd", True, "custom code"), ("llama", False, None)],
)
def test_code_in_a_model_folder_is_run_only_where_it_is_trusted(ask, tmp_path, monkeypatch, kind, own_tokenizer, said):
    mark = tmp_path / "mark"
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # nobody is asked either

    def plant(folder: Path):
        (folder / "own.py").write_text(MARK.format(mark=str(mark)) + OWN)
        classes = {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}
        written("config.json", model_type=kind, auto_map=classes)(folder)
        if own_tokenizer:
            written("tokenizer_config.json", auto_map={"AutoTokenizer": [None, "own.T"]}, tokenizer_class="T")(folder)

    found = ask(plant)
    assert not mark.exists()
    if said:
        assert said in found["s"]
        assert "trust_remote_code: true" in found["s"]
    else:
        assert [row["flags"] for row in found["s"]] == [None] * 3, "transformers' own code does for a known model"
    shutil.rmtree(tmp_path / "model")
    assert isinstance(ask(plant, trust_remote_code=True)["s"], list)
    assert mark.exists()


class Payload:
    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


def test_a_pickle_with_code_in_it_runs_nothing_even_where_pickles_are_allowed(ask, tmp_path):
    def plant(folder: Path):
        (folder / "model.safetensors").unlink()
        torch.save({"a": Payload(tmp_path / "mark")}, folder / "pytorch_model.bin")

    with pytest.raises(ModelError, match=r"only pickled weights, which can run code .* allow_pickle: true"):
        ask(plant)
    shutil.rmtree(tmp_path / "model")
    assert "pickle contains more than weights" in ask(plant, allow_pickle=True)["s"]
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
def test_what_a_generation_config_wishes_changes_no_greedy_text(ask, whole, keys, tmp_path):
    plain = [row["raw_output"] for row in ask(lambda folder: None)["g"]]
    shutil.rmtree(tmp_path / "model")
    shutil.rmtree(tmp_path / "store")
    found = ask(lambda folder: (folder / "generation_config.json").write_text(json.dumps(keys)))
    assert [row["raw_output"] for row in found["g"]] == plain


def test_weights_that_the_model_has_no_place_for_are_counted_in_the_facts(ask, tmp_path):
    ask(weights(lambda w: w.update({"model.layers.7.extra": torch.zeros(3)})))
    [path] = (tmp_path / "m" / "scores").glob("*.parquet")
    assert artifacts.metadata(path)["model"]["unused_weights"] == {"count": 1, "first": "model.layers.7.extra"}
