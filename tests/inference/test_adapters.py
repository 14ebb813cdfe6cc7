"""Adapters: applied to a base that is loaded once, equal to the merged model, and rejected if they do not fit."""

import json
import re
import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from support import lora_training, tiny, tuners
from support.engines import score
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import fingerprint
from vernacular.inference.job.run import run_group
from vernacular.inference.model.load import Base, load, use_adapter, wrap
from vernacular.inference.schema import SCORES
from vernacular.stages.collect import write_outputs

SETTINGS = {"dtype": "float32", "device": "cpu", "strategy": "auto", "chat": False, "bos": "auto"}
TEXTS = [("A casa é grande", 2, 15), ("O neno come pan", 0, 15), ("As flores son azuis", 10, 19)]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Save a base and three adapters: two LoRAs, and one that also retrains the output head."""
    directory = tmp_path_factory.mktemp("adapters")
    tiny.save("llama", directory / "base")
    lora_training.train(directory / "base", directory / "one")
    lora_training.train(directory / "base", directory / "two", seed=1, target_modules=["q_proj", "gate_proj"])
    lora_training.train(directory / "base", directory / "head", modules_to_save=["lm_head"])
    base = resolve("base", str(directory / "base"), directory / "converted") | SETTINGS
    return directory, base


def logprobs(loaded) -> list[list[float]]:
    return score(loaded, tiny.score_requests(TEXTS))[0]["logprobs"].to_pylist()


def merged_logprobs(directory, name: str) -> list[list[float]]:
    model = AutoModelForCausalLM.from_pretrained(directory / "base", dtype=torch.float32)
    model = PeftModel.from_pretrained(model, directory / name).merge_and_unload().eval()
    tokenizer = AutoTokenizer.from_pretrained(directory / "base")
    return logprobs(wrap(model, tokenizer, tiny.record("llama")))


@pytest.mark.parametrize("name", ["one", "two", "head"])
def test_applied_adapter_equals_merged_model(workspace, name):
    directory, base = workspace
    loaded = load(base)
    base_logprobs = logprobs(loaded)
    with use_adapter(loaded, resolve_adapter(name, str(directory / name), base)) as adapted:
        adapted_logprobs = logprobs(adapted)
    for actual, expected in zip(adapted_logprobs, merged_logprobs(directory, name), strict=True):
        assert actual == pytest.approx(expected, abs=2e-5)
    assert (
        max(abs(a - b) for x, y in zip(adapted_logprobs, base_logprobs, strict=True) for a, b in zip(x, y, strict=True))
        > 0.05
    )


def test_base_is_identical_after_adapters(workspace):
    directory, base = workspace
    loaded = load(base)
    base_logprobs = logprobs(loaded)
    for name in ("head", "one", "head", "two"):
        with use_adapter(loaded, resolve_adapter(name, str(directory / name), base)) as adapted:
            logprobs(adapted)
        assert logprobs(loaded) == base_logprobs, name
    assert not hasattr(loaded.model, "peft_config")


def test_base_and_adapters_share_one_load_with_separate_outputs(workspace, tmp_path):
    directory, base = workspace
    path = tiny.write_requests(tmp_path / "e.parquet", tiny.score_requests(TEXTS))
    records = [base, *(resolve_adapter(name, str(directory / name), base) for name in ("one", "two"))]
    statuses, failed = run_group(records, {"e": path}, tmp_path / "store")
    assert statuses == {name: {"e": "computed"} for name in ("base", "one", "two")}
    assert not any(failed.values())
    loads, outputs = 0, []
    for record in records:
        write_outputs(record, {"e": path}, tmp_path / record.name, tmp_path / "store")
        output_path = tmp_path / record.name / "scores" / "e.parquet"
        loads += artifacts.metadata(output_path)["counters"]["loads"]
        outputs.append(artifacts.read(output_path, SCORES)["logprobs"].to_pylist())
    assert loads == 1
    assert artifacts.metadata(output_path)["model"]["adapter"]["type"] == "LORA"
    assert outputs[0] != outputs[1] != outputs[2] != outputs[0]
    cached_statuses, _ = run_group(records, {"e": path}, tmp_path / "store")
    assert cached_statuses == {name: {"e": "found in the store"} for name in ("base", "one", "two")}


def test_inapplicable_adapter_fails_alone(workspace, tmp_path):
    directory, base = workspace
    shutil.copytree(directory / "one", tmp_path / "odd")
    weights = load_file(tmp_path / "odd" / "adapter_model.safetensors")
    weights = {key.replace("layers.0.", "layers.1.x."): value for key, value in weights.items()}
    save_file(weights, tmp_path / "odd" / "adapter_model.safetensors")
    invalid_adapter = resolve_adapter("odd", str(tmp_path / "odd"), base)
    path = tiny.write_requests(tmp_path / "e.parquet", tiny.score_requests(TEXTS))
    adapter = resolve_adapter("one", str(directory / "one"), base)
    statuses, failed = run_group([base, invalid_adapter, adapter], {"e": path}, tmp_path / "store")
    assert statuses["base"] == statuses["one"] == {"e": "computed"}
    assert "4 of its weights" in failed["odd"]["e"]
    assert "no counterpart in the base" in failed["odd"]["e"]


def resolve_error(base: dict, directory, **options) -> str:
    with pytest.raises(ModelError) as error_info:
        resolve_adapter("mine", str(directory), base, **options)
    text = str(error_info.value)
    assert "\n" not in text
    return text


def test_directory_without_adapter_config_raises(workspace, tmp_path):
    directory, base = workspace
    assert "adapter_config.json not found" in resolve_error(base, tmp_path)
    assert "set it as source instead of adapter" in resolve_error(base, directory / "base")
    assert f"not found: {tmp_path / 'nowhere'}" in resolve_error(base, tmp_path / "nowhere")
    with pytest.raises(ModelError, match="It contains an adapter; set it as adapter, and its base as base"):
        resolve("one", str(directory / "one"), tmp_path)


def test_adapter_in_subdirectories_is_named(workspace, tmp_path):
    directory, base = workspace
    for step in (10, 200):
        shutil.copytree(directory / "one", tmp_path / "run" / f"checkpoint-{step}")
    error = resolve_error(base, tmp_path / "run")
    assert "adapter_config.json not found. Found in its subdirectory checkpoint-10, checkpoint-200" in error
    assert str(tmp_path / "run" / "checkpoint-200") in error
    shutil.copytree(directory / "base", tmp_path / "model" / "checkpoint-7")
    with pytest.raises(ModelError, match=r"config\.json not found\. Found in its subdirectory checkpoint-7"):
        resolve("mine", str(tmp_path / "model"), tmp_path / "converted")


def changed_weights(directory, target, change):
    """Copy a directory with other weights: `change` maps each name and tensor to new ones."""
    shutil.copytree(directory, target)
    [file] = target.glob("*.safetensors")
    save_file(dict(change(*item) for item in load_file(file).items()), file, metadata={"format": "pt"})
    return target


def test_empty_tensors_are_explained(workspace, tmp_path):
    directory, base = workspace
    empty = changed_weights(directory / "one", tmp_path / "zero3", lambda key, tensor: (key, tensor.new_empty(0)))
    error = resolve_error(base, empty)
    assert "contains 12 empty tensors (base_model." in error
    assert "ZeRO-3" in error


@pytest.mark.parametrize(("wrapper", "remedy"), [("_orig_mod.", "torch.compile"), ("_fsdp_wrapped_module.", "FSDP")])
def test_names_inside_a_wrapper_are_explained(workspace, tmp_path, wrapper, remedy):
    directory, base = workspace
    for name in ("one", "base"):
        changed_weights(directory / name, tmp_path / name, lambda key, tensor: (wrapper + key, tensor))
    assert f'names with "{wrapper}"' in (error := resolve_error(base, tmp_path / "one"))
    assert remedy in error
    with pytest.raises(ModelError, match=remedy):
        resolve("mine", str(tmp_path / "base"), tmp_path / "converted")


def test_adapter_without_effect_is_noted(workspace, tmp_path):
    directory, base = workspace
    untrained = changed_weights(
        directory / "one", tmp_path / "zero", lambda key, tensor: (key, tensor * ("lora_B" not in key))
    )
    loaded = load(base)
    base_logprobs = logprobs(loaded)
    for source, without_effect in ((untrained, True), (directory / "one", None)):
        with use_adapter(loaded, resolve_adapter("mine", str(source), base)) as adapted:
            assert adapted.metadata()["adapter"].get("without_effect") is without_effect
            assert (logprobs(adapted) == base_logprobs) == bool(without_effect)


def test_adapter_of_other_size_raises_before_loading(workspace, tmp_path):
    directory, base = workspace
    shutil.copytree(directory / "one", tmp_path / "wide")
    weights = load_file(tmp_path / "wide" / "adapter_model.safetensors")
    wide_weights = {key: torch.zeros(4, 96) if "lora_A" in key else value for key, value in weights.items()}
    save_file(wide_weights, tmp_path / "wide" / "adapter_model.safetensors")
    assert "q_proj (32 x 32), got 96" in resolve_error(base, tmp_path / "wide")
    deep_weights = {key.replace("layers.1.", "layers.17."): value for key, value in weights.items()}
    save_file(deep_weights, tmp_path / "wide" / "adapter_model.safetensors")
    assert "expected layers 0 to 2, got layer 17" in resolve_error(base, tmp_path / "wide")


def test_changed_vocabulary_raises(workspace, tmp_path):
    directory, base = workspace
    shutil.copytree(directory / "one", tmp_path / "words")
    tokenizer = AutoTokenizer.from_pretrained(directory / "base")
    tokenizer.add_tokens(["<galego>"])
    tokenizer.save_pretrained(tmp_path / "words")
    message = resolve_error(base, tmp_path / "words")
    assert "differs from that of its base (1 of the tokens differ, such as '<galego>')" in message
    shutil.copytree(directory / "head", tmp_path / "rows")
    weights = load_file(tmp_path / "rows" / "adapter_model.safetensors")
    extended = {key: torch.zeros(999, 32) if "lm_head" in key else value for key, value in weights.items()}
    save_file(extended, tmp_path / "rows" / "adapter_model.safetensors")
    assert "got 999" in resolve_error(base, tmp_path / "rows")


def test_base_mismatch_raises_unless_allowed(workspace, tmp_path):
    directory, base = workspace
    base = base | {"source": "meta-llama/Llama-2-7b-hf@main"}
    shutil.copytree(directory / "one", tmp_path / "other")
    config = json.loads((tmp_path / "other" / "adapter_config.json").read_text())
    for trained_on, is_mismatch in (
        ("meta-llama/Llama-2-7b-chat-hf", True),
        ("meta-llama/Llama-2-7b-hf", False),
        ("./x", False),
    ):
        (tmp_path / "other" / "adapter_config.json").write_text(
            json.dumps(config | {"base_model_name_or_path": trained_on})
        )
        if is_mismatch:
            assert "expected the base meta-llama/Llama-2-7b-chat-hf" in resolve_error(base, tmp_path / "other")
            assert resolve_adapter("mine", str(tmp_path / "other"), base, allow_base_mismatch=True)
        else:
            assert resolve_adapter("mine", str(tmp_path / "other"), base)


def test_prompt_tuning_and_pickled_weights_raise(workspace, tmp_path):
    directory, base = workspace
    shutil.copytree(directory / "one", tmp_path / "odd")
    config = json.loads((directory / "one" / "adapter_config.json").read_text())
    (tmp_path / "odd" / "adapter_config.json").write_text(json.dumps(config | {"peft_type": "PREFIX_TUNING"}))
    assert "PREFIX_TUNING" in resolve_error(base, tmp_path / "odd")
    (tmp_path / "odd" / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "odd" / "adapter_model.safetensors").unlink()
    assert "no adapter weights (adapter_model.safetensors)" in resolve_error(base, tmp_path / "odd")
    torch.save({}, tmp_path / "odd" / "adapter_model.bin")
    assert "allow_pickle: true" in resolve_error(base, tmp_path / "odd")


def test_adapter_fingerprint_depends_on_weights(workspace, tmp_path):
    directory, base = workspace
    adapter = resolve_adapter("a", str(directory / "one"), base)
    shutil.copytree(directory / "one", tmp_path / "copy")
    assert resolve_adapter("b", str(tmp_path / "copy"), base).fingerprint == adapter.fingerprint
    assert resolve_adapter("c", str(directory / "two"), base).fingerprint != adapter.fingerprint
    assert adapter.fingerprint != base.fingerprint


def test_embedding_weights_must_match_vocabulary(tmp_path):
    tiny.save("qwen2", tmp_path / "base")  # tied embeddings: the files contain no head
    base = resolve("base", str(tmp_path / "base"), tmp_path / "converted") | SETTINGS
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    n_tokens = model.config.vocab_size
    for name, replacement, message in [
        ("lora embedding", {"lora_embedding_A": torch.zeros(4, n_tokens + 1)}, f"lora_embedding_A, got {n_tokens + 1}"),
        ("lora embedding", {"lora_embedding_B": torch.zeros(48, 4)}, f"embed_tokens ({n_tokens} x 32), got 48"),
        ("trainable tokens", {"embed_tokens.trainable_tokens_delta": torch.zeros(100, 48)}, "got 48"),
        ("lora saved embedding", {"embed_tokens.weight": torch.zeros(n_tokens + 2, 32)}, f"got {n_tokens + 2}"),
        ("lora saved norm", {"norm.weight": torch.zeros(48)}, "norm, got 48"),
        ("lora bias all", {"q_proj.base_layer.bias": torch.zeros(8)}, "q_proj, got 8"),
    ]:  # fmt: skip
        directory = tmp_path / fingerprint([name, message])
        tuners.save(tuners.CASES[name], "qwen2", model, directory)
        assert resolve_adapter("mine", str(directory), base)
        weights = load_file(directory / "adapter_model.safetensors")
        (key_suffix, value), *_ = replacement.items()
        keys = [key for key in weights if key.endswith(key_suffix)]
        assert keys, (key_suffix, sorted(weights))
        save_file(weights | dict.fromkeys(keys[:1], value), directory / "adapter_model.safetensors")
        assert message in resolve_error(base, directory)


@pytest.mark.parametrize(
    "name", ["lora trainable_token_indices", "lora trainable_token_indices by module", "trainable tokens"]
)
def test_trained_tokens_beyond_vocabulary_raise(tmp_path, name):
    tiny.save("qwen2", tmp_path / "base")
    base = resolve("base", str(tmp_path / "base"), tmp_path / "converted") | SETTINGS
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    n_tokens = model.config.vocab_size
    model.resize_token_embeddings(n_tokens + 1)
    options = {"trainable_token_indices by module": {"trainable_token_indices": {"embed_tokens": [4, n_tokens]}}}
    options = options.get(
        name.removeprefix("lora "), {"token_indices" if name[0] == "t" else "trainable_token_indices": [4, n_tokens]}
    )
    tuners.save(tuners.CASES[name], "qwen2", model, tmp_path / "one", **options)
    message = resolve_error(base, tmp_path / "one")
    assert "vocabulary" in message
    assert re.search(rf"expected {n_tokens} rows in \S+, got {n_tokens + 1}\b", message)


def test_oversized_head_for_tied_base_raises(tmp_path):
    tiny.save("qwen2", tmp_path / "base")
    base = resolve("base", str(tmp_path / "base"), tmp_path / "converted") | SETTINGS
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    tuners.save(tuners.CASES["lora saved lm_head"], "qwen2", model, tmp_path / "one")
    weights = load_file(tmp_path / "one" / "adapter_model.safetensors")
    key = next(key for key in weights if key.endswith("lm_head.weight"))
    save_file(weights | {key: torch.zeros(999, 32)}, tmp_path / "one" / "adapter_model.safetensors")
    adapter = resolve_adapter("one", str(tmp_path / "one"), base)
    with pytest.raises(ModelError, match="cannot be applied to base"), use_adapter(load(base), adapter):
        pass


def test_packed_weights_of_quantized_base_are_not_compared(workspace, tmp_path):
    directory, base = workspace
    shutil.copytree(directory / "base", tmp_path / "base")
    weights = load_file(tmp_path / "base" / "model.safetensors")
    packed = {k: torch.zeros(v.numel() // 2, 1, dtype=torch.uint8) if "proj" in k else v for k, v in weights.items()}
    save_file(packed, tmp_path / "base" / "model.safetensors", metadata={"format": "pt"})
    assert resolve_adapter("one", str(directory / "one"), base | {"directory": str(tmp_path / "base")})


@pytest.mark.parametrize("arch", ["bert", "roberta"])
@pytest.mark.parametrize("options", [
    {"target_modules": ["query", "value"]}, {"target_modules": ["query", "word_embeddings"]},
    {"target_modules": ["query"], "trainable_token_indices": {"word_embeddings": list(range(5, 150))}},
    {"target_modules": ["query"], "bias": "all"}, {"target_modules": ["query"], "init_lora_weights": "pissa"},
])  # fmt: skip
def test_adapters_of_masked_models(tmp_path, arch, options):
    tiny.save(arch, tmp_path / "base")
    base = resolve("base", str(tmp_path / "base"), tmp_path / "converted") | SETTINGS
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "base", dtype=torch.float32).eval()
    tuners.save(tuners.lora(task_type=None, **options), "llama", model, tmp_path / "one")
    shared = Base(base)
    with shared.model(base) as loaded:
        base_logprobs = logprobs(loaded)
    with shared.model(resolve_adapter("one", str(tmp_path / "one"), base)) as loaded:
        actual_logprobs, tokenizer, record = logprobs(loaded), loaded.tokenizer, loaded.record
    reference_model = PeftModel.from_pretrained(model, tmp_path / "one").eval().get_base_model()
    for actual, expected in zip(actual_logprobs, logprobs(wrap(reference_model, tokenizer, record)), strict=True):
        assert actual == pytest.approx(expected, abs=1e-4)
    assert actual_logprobs != base_logprobs
    with shared.model(base) as loaded:
        assert logprobs(loaded) == base_logprobs
    assert len(shared.reloads) == bool({"bias", "init_lora_weights"} & options.keys())
