"""Adapters: switched on over a base that is loaded once, equal to the merged model, and refused where they do not fit."""

import json
import re
import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from support import adapting, tiny, tuners
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import fingerprint
from vernacular.inference.job.collect import lay_out
from vernacular.inference.job.run import run_group
from vernacular.inference.model.adapter import adapted
from vernacular.inference.model.base import Base
from vernacular.inference.model.load import load, wrap
from vernacular.inference.schema import SCORES
from vernacular.inference.scoring.score import score
from vernacular.protocols.schema import REQUESTS

ASKED = {"dtype": "float32", "device": "cpu", "strategy": "auto", "chat": False, "bos": "auto"}
TEXTS = [("A casa é grande", 2, 15), ("O neno come pan", 0, 15), ("As flores son azuis", 10, 19)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A base and three adapters: two LoRAs, and one that also retrains the whole output head."""
    folder = tmp_path_factory.mktemp("adapters")
    tiny.save("llama", folder / "base")
    adapting.train(folder / "base", folder / "one")
    adapting.train(folder / "base", folder / "two", seed=1, target_modules=["q_proj", "gate_proj"])
    adapting.train(folder / "base", folder / "head", modules_to_save=["lm_head"])
    base = resolve("base", str(folder / "base"), folder / "converted") | ASKED
    return folder, base


def logprobs(loaded) -> list[list[float]]:
    return score(loaded, tiny.score_requests(TEXTS))[0]["logprobs"].to_pylist()


def merged(folder, name: str) -> list[list[float]]:
    model = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    model = PeftModel.from_pretrained(model, folder / name).merge_and_unload().eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "base")
    return logprobs(wrap(model, tokenizer, tiny.record("llama")))


@pytest.mark.parametrize("name", ["one", "two", "head"])
def test_switched_on_equals_merged_and_differs_from_the_base(place, name):
    folder, base = place
    loaded = load(base)
    before = logprobs(loaded)
    with adapted(loaded, resolve_adapter(name, str(folder / name), base)) as on:
        switched = logprobs(on)
    for ours, theirs in zip(switched, merged(folder, name), strict=True):
        assert ours == pytest.approx(theirs, abs=2e-5)
    assert max(abs(a - b) for x, y in zip(switched, before, strict=True) for a, b in zip(x, y, strict=True)) > 0.05


def test_the_base_is_the_same_to_the_bit_after_any_adapters(place):
    folder, base = place
    loaded = load(base)
    before = logprobs(loaded)
    for name in ("head", "one", "head", "two"):
        with adapted(loaded, resolve_adapter(name, str(folder / name), base)) as on:
            logprobs(on)
        assert logprobs(loaded) == before, name
    assert not hasattr(loaded.model, "peft_config")


def test_a_base_and_its_adapters_share_one_load_and_the_answers_are_told_apart(place, tmp_path):
    folder, base = place
    table = tiny.score_requests(TEXTS)
    note = {"protocol": "acceptability", "request_kind": "score", "causal_only": False, "fingerprint": "f"}
    path = artifacts.write(tmp_path / "e.parquet", REQUESTS, table, note)
    records = [base, *(resolve_adapter(name, str(folder / name), base) for name in ("one", "two"))]
    done, failed = run_group(records, {"e": path}, tmp_path / "store")
    assert done == {name: {"e": "computed"} for name in ("base", "one", "two")}
    assert not any(failed.values())
    loads, seen = 0, []
    for record in records:
        lay_out(record, {"e": path}, tmp_path / record["name"], tmp_path / "store")
        answered = tmp_path / record["name"] / "scores" / "e.parquet"
        loads += artifacts.metadata(answered)["counters"]["loads"]
        seen.append(artifacts.read(answered, SCORES)["logprobs"].to_pylist())
    assert loads == 1
    assert artifacts.metadata(answered)["model"]["adapter"]["type"] == "LORA"
    assert seen[0] != seen[1] != seen[2] != seen[0]
    again, _ = run_group(records, {"e": path}, tmp_path / "store")
    assert again == {name: {"e": "found in the store"} for name in ("base", "one", "two")}


def test_an_adapter_that_cannot_be_put_on_costs_itself_alone(place, tmp_path):
    folder, base = place
    shutil.copytree(folder / "one", tmp_path / "odd")
    weights = load_file(tmp_path / "odd" / "adapter_model.safetensors")
    weights = {key.replace("layers.0.", "layers.1.x."): value for key, value in weights.items()}
    save_file(weights, tmp_path / "odd" / "adapter_model.safetensors")
    odd = resolve_adapter("odd", str(tmp_path / "odd"), base)
    path = artifacts.write(
        tmp_path / "e.parquet", REQUESTS, tiny.score_requests(TEXTS),
        {"protocol": "acceptability", "request_kind": "score", "causal_only": False, "fingerprint": "f"},
    )  # fmt: skip
    one = resolve_adapter("one", str(folder / "one"), base)
    done, failed = run_group([base, odd, one], {"e": path}, tmp_path / "store")
    assert done["base"] == done["one"] == {"e": "computed"}
    assert "4 of its weights" in failed["odd"]["e"]
    assert "no counterpart in the base" in failed["odd"]["e"]


def complaint(base: dict, folder, **options) -> str:
    with pytest.raises(ModelError) as raised:
        resolve_adapter("mine", str(folder), base, **options)
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_a_folder_without_an_adapter_config_is_no_adapter(place, tmp_path):
    folder, base = place
    assert "adapter_config.json not found" in complaint(base, tmp_path)
    assert "set it as source instead of adapter" in complaint(base, folder / "base")
    assert f"not found: {tmp_path / 'nowhere'}" in complaint(base, tmp_path / "nowhere")


def test_an_adapter_for_a_base_of_another_size_is_refused_before_anything_loads(place, tmp_path):
    folder, base = place
    shutil.copytree(folder / "one", tmp_path / "wide")
    weights = load_file(tmp_path / "wide" / "adapter_model.safetensors")
    wide = {key: torch.zeros(4, 96) if "lora_A" in key else value for key, value in weights.items()}
    save_file(wide, tmp_path / "wide" / "adapter_model.safetensors")
    assert "q_proj (32 x 32), got 96" in complaint(base, tmp_path / "wide")
    deep = {key.replace("layers.1.", "layers.17."): value for key, value in weights.items()}
    save_file(deep, tmp_path / "wide" / "adapter_model.safetensors")
    assert "expected layers 0 to 2, got layer 17" in complaint(base, tmp_path / "wide")


def test_a_changed_vocabulary_is_refused(place, tmp_path):
    folder, base = place
    shutil.copytree(folder / "one", tmp_path / "words")
    tokenizer = AutoTokenizer.from_pretrained(folder / "base")
    tokenizer.add_tokens(["<galego>"])
    tokenizer.save_pretrained(tmp_path / "words")
    said = complaint(base, tmp_path / "words")
    assert "differs from that of its base (1 of the tokens differ, such as '<galego>')" in said
    shutil.copytree(folder / "head", tmp_path / "rows")
    weights = load_file(tmp_path / "rows" / "adapter_model.safetensors")
    longer = {key: torch.zeros(999, 32) if "lm_head" in key else value for key, value in weights.items()}
    save_file(longer, tmp_path / "rows" / "adapter_model.safetensors")
    assert "got 999" in complaint(base, tmp_path / "rows")


def test_an_adapter_of_another_hub_model_is_refused_unless_allowed(place, tmp_path):
    folder, base = place
    base = {**base, "source": "meta-llama/Llama-2-7b-hf@main"}
    shutil.copytree(folder / "one", tmp_path / "other")
    config = json.loads((tmp_path / "other" / "adapter_config.json").read_text())
    for trained_on, refused in (
        ("meta-llama/Llama-2-7b-chat-hf", True),
        ("meta-llama/Llama-2-7b-hf", False),
        ("./x", False),
    ):
        (tmp_path / "other" / "adapter_config.json").write_text(
            json.dumps(config | {"base_model_name_or_path": trained_on})
        )
        if refused:
            assert "expected the base meta-llama/Llama-2-7b-chat-hf" in complaint(base, tmp_path / "other")
            assert resolve_adapter("mine", str(tmp_path / "other"), base, allow_base_mismatch=True)
        else:
            assert resolve_adapter("mine", str(tmp_path / "other"), base)


def test_prompt_tuning_and_pickled_weights_are_refused_with_a_reason(place, tmp_path):
    folder, base = place
    shutil.copytree(folder / "one", tmp_path / "odd")
    config = json.loads((folder / "one" / "adapter_config.json").read_text())
    (tmp_path / "odd" / "adapter_config.json").write_text(json.dumps(config | {"peft_type": "PREFIX_TUNING"}))
    assert "PREFIX_TUNING" in complaint(base, tmp_path / "odd")
    (tmp_path / "odd" / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "odd" / "adapter_model.safetensors").unlink()
    assert "no adapter weights (adapter_model.safetensors)" in complaint(base, tmp_path / "odd")
    torch.save({}, tmp_path / "odd" / "adapter_model.bin")
    assert "allow_pickle: true" in complaint(base, tmp_path / "odd")


def test_an_adapter_that_is_trained_further_is_another_model(place, tmp_path):
    folder, base = place
    one = resolve_adapter("a", str(folder / "one"), base)
    shutil.copytree(folder / "one", tmp_path / "copy")
    assert resolve_adapter("b", str(tmp_path / "copy"), base)["fingerprint"] == one["fingerprint"]
    assert resolve_adapter("c", str(folder / "two"), base)["fingerprint"] != one["fingerprint"]
    assert one["fingerprint"] != base["fingerprint"]


def test_weights_of_embeddings_and_tokens_must_fit_the_vocabulary(tmp_path):
    tiny.save("qwen2", tmp_path / "base")  # tied: its files have no head
    base = resolve("base", str(tmp_path / "base"), tmp_path / "converted") | ASKED
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    n = model.config.vocab_size
    for name, changed, said in [
        ("lora embedding", {"lora_embedding_A": torch.zeros(4, n + 1)}, f"lora_embedding_A, got {n + 1}"),
        ("lora embedding", {"lora_embedding_B": torch.zeros(48, 4)}, f"embed_tokens ({n} x 32), got 48"),
        ("trainable tokens", {"embed_tokens.trainable_tokens_delta": torch.zeros(100, 48)}, "got 48"),
        ("lora saved embedding", {"embed_tokens.weight": torch.zeros(n + 2, 32)}, f"got {n + 2}"),
        ("lora saved norm", {"norm.weight": torch.zeros(48)}, "norm, got 48"),
        ("lora bias all", {"q_proj.base_layer.bias": torch.zeros(8)}, "q_proj, got 8"),
    ]:  # fmt: skip
        folder = tmp_path / fingerprint([name, said])
        tuners.save(tuners.CASES[name], "qwen2", model, folder)
        assert resolve_adapter("mine", str(folder), base)
        weights = load_file(folder / "adapter_model.safetensors")
        (part, value), *_ = changed.items()
        keys = [key for key in weights if key.endswith(part)]
        assert keys, (part, sorted(weights))
        save_file(weights | dict.fromkeys(keys[:1], value), folder / "adapter_model.safetensors")
        assert said in complaint(base, folder)


@pytest.mark.parametrize(
    "name", ["lora trainable_token_indices", "lora trainable_token_indices by module", "trainable tokens"]
)
def test_trained_tokens_beyond_the_vocabulary_are_refused(tmp_path, name):
    tiny.save("qwen2", tmp_path / "base")
    base = resolve("base", str(tmp_path / "base"), tmp_path / "converted") | ASKED
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    n = model.config.vocab_size
    model.resize_token_embeddings(n + 1)
    options = {"trainable_token_indices by module": {"trainable_token_indices": {"embed_tokens": [4, n]}}}
    options = options.get(
        name.removeprefix("lora "), {"token_indices" if name[0] == "t" else "trainable_token_indices": [4, n]}
    )
    tuners.save(tuners.CASES[name], "qwen2", model, tmp_path / "one", **options)
    said = complaint(base, tmp_path / "one")
    assert "vocabulary" in said
    assert re.search(rf"expected {n} rows in \S+, got {n + 1}\b", said)


def test_a_head_for_more_tokens_than_a_tied_base_has_is_refused(tmp_path):
    tiny.save("qwen2", tmp_path / "base")
    base = resolve("base", str(tmp_path / "base"), tmp_path / "converted") | ASKED
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    tuners.save(tuners.CASES["lora saved lm_head"], "qwen2", model, tmp_path / "one")
    weights = load_file(tmp_path / "one" / "adapter_model.safetensors")
    key = next(key for key in weights if key.endswith("lm_head.weight"))
    save_file(weights | {key: torch.zeros(999, 32)}, tmp_path / "one" / "adapter_model.safetensors")
    one = resolve_adapter("one", str(tmp_path / "one"), base)
    with pytest.raises(ModelError, match="cannot be applied to base"), adapted(load(base), one):
        pass


def test_packed_weights_of_a_quantized_base_are_not_compared(place, tmp_path):
    folder, base = place
    shutil.copytree(folder / "base", tmp_path / "base")
    weights = load_file(tmp_path / "base" / "model.safetensors")
    packed = {k: torch.zeros(v.numel() // 2, 1, dtype=torch.uint8) if "proj" in k else v for k, v in weights.items()}
    save_file(packed, tmp_path / "base" / "model.safetensors", metadata={"format": "pt"})
    assert resolve_adapter("one", str(folder / "one"), base | {"folder": str(tmp_path / "base")})


@pytest.mark.parametrize("arch", ["bert", "roberta"])
@pytest.mark.parametrize("options", [
    {"target_modules": ["query", "value"]}, {"target_modules": ["query", "word_embeddings"]},
    {"target_modules": ["query"], "trainable_token_indices": {"word_embeddings": list(range(5, 150))}},
    {"target_modules": ["query"], "bias": "all"}, {"target_modules": ["query"], "init_lora_weights": "pissa"},
])  # fmt: skip
def test_masked_models_take_adapters_too(tmp_path, arch, options):
    tiny.save(arch, tmp_path / "base")
    base = resolve("base", str(tmp_path / "base"), tmp_path / "converted") | ASKED
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "base", dtype=torch.float32).eval()
    tuners.save(tuners.lora(task_type=None, **options), "llama", model, tmp_path / "one")
    shared = Base(base)
    with shared.model(base) as loaded:
        before = logprobs(loaded)
    with shared.model(resolve_adapter("one", str(tmp_path / "one"), base)) as loaded:
        found, tokenizer, record = logprobs(loaded), loaded.tokenizer, loaded.record
    expected = PeftModel.from_pretrained(model, tmp_path / "one").eval().get_base_model()
    for ours, theirs in zip(found, logprobs(wrap(expected, tokenizer, record)), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
    assert found != before
    with shared.model(base) as loaded:
        assert logprobs(loaded) == before
    assert len(shared.reloads) == bool({"bias", "init_lora_weights"} & options.keys())
