"""Every PEFT adapter type equals PEFT's own model and leaves its base unchanged, or is rejected with its name."""

import copy
import importlib.util
import json
import typing

import peft
import pytest
import torch
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from peft.tuners.lora import LoraConfig
from peft.tuners.lora.config import ArrowConfig, CordaConfig
from peft.utils import PeftType
from safetensors.torch import load_file, save_file
from support import tiny, tuners
from support.engines import score
from support.messages import assert_states
from transformers import AutoModelForCausalLM
from vernacular.checkpoints.adapters import MODULE_TYPES, PROMPT_TYPES, UNSUPPORTED_TYPES, resolve_adapter
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ModelError
from vernacular.inference.model.load import Base
from vernacular.inference.scoring.plan import STRATEGIES
from vernacular.inference.scoring.prepare import prepare

RECORD = {"dtype": "float32", "device": "cpu", "strategy": "auto", "chat": False, "bos": "auto"}
PREFIX = "A choiva cae amodo sobre a vila; ninguén sae da casa. Question: What is the capital of Galicia?\n"
REQUESTS = tiny.score_requests([
    (PREFIX, "A. Vigo\nB. Lugo\nThe keys", 8, 24), (PREFIX, "A. Vigo\nB. Ourense", 8, 18),
    (PREFIX, "The cabinet is on the table", 4, 27),
])  # fmt: skip


class AdapterFactory:
    """A base of one architecture, on disk and in memory, and its adapters."""

    def __init__(self, arch: str, directory):
        self.arch, self.directory = arch, directory
        tiny.save(arch, directory / "base")
        self.record = resolve("base", str(directory / "base"), directory / "converted") | RECORD
        self.base = Base(self.record)
        with self.base.model(self.record) as loaded:
            self.outputs = score(loaded, REQUESTS)[0]["logprobs"].to_pylist()
        self.original = AutoModelForCausalLM.from_pretrained(directory / "base", dtype=torch.float32).eval()

    def adapter(self, name: str, **options):
        """Return the record of a case's adapter."""
        directory = self.directory / name.replace(" ", "_")
        if not directory.exists():
            tuners.save(tuners.CASES[name], self.arch, self.load_base(), directory, **options)
        return resolve_adapter(name, str(directory), self.record)

    def load_base(self):
        """Return a copy of the base as transformers loads it."""
        return copy.deepcopy(self.original)


# qwen2 in slow tests only: llama and gpt2 share least
@pytest.fixture(
    scope="module",
    params=[pytest.param(arch, marks=[pytest.mark.slow] * (arch == "qwen2")) for arch in tuners.ARCHITECTURES],
)
def models(request, tmp_path_factory):
    return AdapterFactory(request.param, tmp_path_factory.mktemp(request.param))


def peft_logprobs(models, adapter: dict) -> list[list[float]]:
    """Return the log-probabilities of the requests by PEFT's own model, one text at a time."""
    torch.manual_seed(0)
    model = peft.PeftModel.from_pretrained(models.load_base(), adapter.adapter.directory).eval()
    rows = []
    for row in REQUESTS.to_pylist():
        request = prepare(models.base.loaded, row)
        ids = torch.tensor([request.ids])
        with torch.inference_mode():
            logprobs = model(input_ids=ids).logits[0].double().log_softmax(-1)
        rows.append([float(logprobs[i - 1, ids[0, i]]) for i in range(request.first, request.stop)])
    return rows


def max_difference(rows: list[list[float]], expected_rows: list[list[float]]) -> float:
    return max(abs(a - b) for x, y in zip(rows, expected_rows, strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("name", tuners.CASES)
def test_adapter_matches_peft_with_every_strategy_and_restores_base(models, name):
    case = tuners.CASES[name]
    if models.arch in case.unsupported_on:
        with pytest.raises((TypeError, ValueError, NotImplementedError, AttributeError), match=r"support|in_features"):
            models.adapter(name)
        return
    adapter = models.adapter(name)
    if models.arch in case.broken_on:
        with pytest.raises(RuntimeError):
            peft_logprobs(models, adapter)
        with pytest.raises(ModelError) as raised, models.base.model(adapter):
            pass
        assert_states(raised.value, "adapter", adapter.adapter.source, "applied", "base")
        return
    expected = peft_logprobs(models, adapter)
    assert max_difference(expected, models.outputs) > 0.004, "the adapter has no effect"
    models.base.verify()
    n_reloads = len(models.base.reloads)
    with models.base.model(adapter) as loaded:
        for strategy in STRATEGIES:
            table, metadata = score(loaded, REQUESTS, strategy=strategy)
            assert metadata["engine"]["strategy"] == strategy, metadata["engine"]["fallback"]
            assert metadata["engine"]["head"] == "rows"
            assert max_difference(table["logprobs"].to_pylist(), expected) < 1e-4, strategy
    with models.base.model(models.record) as loaded:
        assert score(loaded, REQUESTS)[0]["logprobs"].to_pylist() == models.outputs
        assert len(models.base.reloads) - n_reloads == tuners.edits_base(case, models.arch)


def test_every_peft_tuner_and_initialization_is_classified():
    type_groups = (MODULE_TYPES, PROMPT_TYPES, UNSUPPORTED_TYPES.keys())
    assert sorted(kind.value for kind in PeftType) == sorted(kind for kinds in type_groups for kind in kinds)
    assert sorted(PEFT_TYPE_TO_CONFIG_MAPPING) == sorted(PeftType)
    assert {case.tuner for case in tuners.CASES.values()} == MODULE_TYPES
    hints = typing.get_type_hints(LoraConfig)
    lora_options = [
        case.options(tuners.MODULES["llama"]) | case.config_overrides
        for case in tuners.CASES.values()
        if case.tuner == "LORA"
    ]
    initializations = {name for name in _literals(hints["init_lora_weights"]) if not name.startswith("pissa_niter")}
    tested = {
        options["init_lora_weights"] for options in lora_options if isinstance(options.get("init_lora_weights"), str)
    }
    assert initializations - {"corda", "loftq"} <= tested
    assert _literals(hints["bias"]) == {"none"} | {options["bias"] for options in lora_options if "bias" in options}


def _literals(annotation) -> set[str]:
    """Return all strings in an annotation's Literals."""
    members = typing.get_args(annotation)
    return {member for member in members if isinstance(member, str)}.union(
        *(_literals(p) for p in members if not isinstance(p, str))
    )


def resolve_error(models, directory, config) -> str:
    """Return the error message for an adapter with this config."""
    config.save_pretrained(directory)
    with pytest.raises(ModelError) as error_info:
        resolve_adapter("mine", str(directory), models.record)
    assert "\n" not in str(error_info.value)
    return str(error_info.value)


@pytest.mark.parametrize("kind", [*sorted(PROMPT_TYPES), *UNSUPPORTED_TYPES])
def test_unsupported_tuner_type_raises(models, tmp_path, kind):
    options = {"adapters": {}, "hidden_size": 32} if kind == "XLORA" else {}
    message = resolve_error(models, tmp_path, PEFT_TYPE_TO_CONFIG_MAPPING[kind](task_type="CAUSAL_LM", **options))
    assert_states(message, "mine", f" {kind} adapter", "change weights")


def test_unknown_tuner_raises(models, tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LOOHA"}))
    with pytest.raises(ModelError) as raised:
        resolve_adapter("mine", str(tmp_path), models.record)
    assert_states(raised.value, "mine", "peft_type", '"LOOHA"', '"LOHA"')


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"alora_invocation_tokens": [5, 6], "task_type": "CAUSAL_LM"}, ("alora_invocation_tokens", "aLoRA")),
        ({"arrow_config": ArrowConfig(top_k=1)}, ("arrow_config", "Arrow")),
        ({"layer_replication": [(0, 2), (1, 3)]}, ("layer_replication", "repeated layers")),
        ({"init_lora_weights": "corda", "corda_config": CordaConfig()}, ("init_lora_weights", "corda", "covariances")),
    ],
)
def test_unsupported_lora_option_raises(models, tmp_path, options, parts):
    message = resolve_error(models, tmp_path, LoraConfig(target_modules=["q_proj"], **options))
    assert_states(message, "mine", *parts)


def test_adapter_sampling_at_inference_raises(models, tmp_path):
    config = PEFT_TYPE_TO_CONFIG_MAPPING["PVERA"](target_modules=["q_proj"], sample_at_inference=True)
    assert_states(resolve_error(models, tmp_path, config), "mine", "sample_at_inference", "random")


def test_adapter_without_shared_weights_raises(models, tmp_path):
    directory = tuners.save(tuners.CASES["vblora"], models.arch, models.load_base(), tmp_path)
    weights = load_file(directory / "adapter_model.safetensors")
    del weights["base_model.vblora_vector_bank"]
    save_file(weights, directory / "adapter_model.safetensors")
    adapter = resolve_adapter("vblora", str(directory), models.record)
    with pytest.raises(ModelError) as raised, models.base.model(adapter):
        pass
    assert_states(raised.value, "vblora", "weights", "vblora_vector_bank", "not found")


def test_loftq_adapter_requires_bitsandbytes(models):
    directory = models.directory / "loftq"
    config_overrides = {"init_lora_weights": "loftq", "loftq_config": {"loftq_bits": 4, "loftq_iter": 1}}
    tuners.save(tuners.Case("LORA", config_overrides=config_overrides), models.arch, models.load_base(), directory)
    adapter = resolve_adapter("loftq", str(directory), models.record)
    is_installed = importlib.util.find_spec("bitsandbytes") is not None
    if is_installed and torch.cuda.is_available():
        expected = peft_logprobs(models, adapter)
        with models.base.model(adapter) as loaded:
            assert max_difference(score(loaded, REQUESTS)[0]["logprobs"].to_pylist(), expected) < 1e-4
    else:
        with pytest.raises(ModelError) as raised, models.base.model(adapter):
            pass
        assert_states(raised.value, "loftq", "applied", "base", "CUDA" if is_installed else "bitsandbytes")
