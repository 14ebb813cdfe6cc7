"""Every kind of PEFT adapter equals PEFT's own model, and leaves its base as it was; or it is refused by name."""

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
from transformers import AutoModelForCausalLM
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.resolve import resolve
from vernacular.checkpoints.tuners import BEFORE_PROMPT, IN_MODULES, OTHERS
from vernacular.core.errors import ModelError
from vernacular.inference.model.base import Base
from vernacular.inference.scoring.plan import STRATEGIES
from vernacular.inference.scoring.prepare import prepare
from vernacular.inference.scoring.score import score

RECORD = {"dtype": "float32", "device": "cpu", "strategy": "auto", "chat": False, "bos": "auto"}
BLOCK = "A choiva cae amodo sobre a vila; ninguén sae da casa. Question: What is the capital of Galicia?\n"
REQUESTS = tiny.score_requests([
    (BLOCK, "A. Vigo\nB. Lugo\nThe keys", 8, 24), (BLOCK, "A. Vigo\nB. Ourense", 8, 18),
    (BLOCK, "The cabinet is on the table", 4, 27),
])  # fmt: skip


class Place:
    """A base of an architecture on disk and in memory."""

    def __init__(self, arch: str, folder):
        self.arch, self.folder = arch, folder
        tiny.save(arch, folder / "base")
        self.record = resolve("base", str(folder / "base"), folder / "converted") | RECORD
        self.base = Base(self.record)
        with self.base.model(self.record) as loaded:
            self.outputs = score(loaded, REQUESTS)[0]["logprobs"].to_pylist()

    def adapter(self, name: str, **options):
        """The record of a case's adapter."""
        folder = self.folder / name.replace(" ", "_")
        if not folder.exists():
            tuners.save(tuners.CASES[name], self.arch, self.fresh(), folder, **options)
        return resolve_adapter(name, str(folder), self.record)

    def fresh(self):
        """The base as transformers loads it."""
        return AutoModelForCausalLM.from_pretrained(self.folder / "base", dtype=torch.float32).eval()


@pytest.fixture(scope="module", params=tuners.ARCHITECTURES)
def place(request, tmp_path_factory):
    return Place(request.param, tmp_path_factory.mktemp(request.param))


def by_peft(place, adapter: dict) -> list[list[float]]:
    """Log-probabilities of the requests by PEFT's own model, one text at a time, with its own forward."""
    torch.manual_seed(0)
    model = peft.PeftModel.from_pretrained(place.fresh(), adapter["adapter"]["folder"]).eval()
    rows = []
    for row in REQUESTS.to_pylist():
        request = prepare(place.base.loaded, row)
        ids = torch.tensor([request.ids])
        with torch.inference_mode():
            logprobs = model(input_ids=ids).logits[0].double().log_softmax(-1)
        rows.append([float(logprobs[i - 1, ids[0, i]]) for i in range(request.first, request.stop)])
    return rows


def furthest(rows: list[list[float]], others: list[list[float]]) -> float:
    return max(abs(a - b) for x, y in zip(rows, others, strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("name", tuners.CASES)
def test_equals_peft_by_every_strategy_and_leaves_the_base_as_it_was(place, name):
    case = tuners.CASES[name]
    if place.arch in case.not_on:
        with pytest.raises((TypeError, ValueError, NotImplementedError, AttributeError), match=r"support|in_features"):
            place.adapter(name)
        return
    adapter = place.adapter(name)
    if place.arch in case.broken_on:
        with pytest.raises(RuntimeError):
            by_peft(place, adapter)
        with pytest.raises(ModelError, match=r"the adapter .* cannot be applied to base"), place.base.model(adapter):
            pass
        return
    expected = by_peft(place, adapter)
    assert furthest(expected, place.outputs) > 0.004, "an adapter that changes nothing proves nothing"
    place.base.verify()
    n_reloads = len(place.base.reloads)
    with place.base.model(adapter) as loaded:
        for strategy in STRATEGIES:
            table, metadata = score(loaded, REQUESTS, strategy=strategy)
            assert metadata["engine"]["strategy"] == strategy, metadata["engine"]["fallback"]
            assert metadata["engine"]["head"] == "rows"
            assert furthest(table["logprobs"].to_pylist(), expected) < 1e-4, strategy
    with place.base.model(place.record) as loaded:
        assert score(loaded, REQUESTS)[0]["logprobs"].to_pylist() == place.outputs
        assert len(place.base.reloads) - n_reloads == tuners.edits(case, place.arch)


def test_every_tuner_and_initialization_of_the_installed_peft_is_classified():
    sets = (IN_MODULES, BEFORE_PROMPT, OTHERS.keys())
    assert sorted(kind.value for kind in PeftType) == sorted(kind for kinds in sets for kind in kinds)
    assert sorted(PEFT_TYPE_TO_CONFIG_MAPPING) == sorted(PeftType)
    assert {case.tuner for case in tuners.CASES.values()} == IN_MODULES
    hints = typing.get_type_hints(LoraConfig)
    chosen = [
        case.options(tuners.MODULES["llama"]) | case.written for case in tuners.CASES.values() if case.tuner == "LORA"
    ]
    initializations = {name for name in _literals(hints["init_lora_weights"]) if not name.startswith("pissa_niter")}
    tested = {options["init_lora_weights"] for options in chosen if isinstance(options.get("init_lora_weights"), str)}
    assert initializations - {"corda", "loftq"} <= tested
    assert _literals(hints["bias"]) == {"none"} | {options["bias"] for options in chosen if "bias" in options}


def _literals(hint) -> set[str]:
    """All strings in an annotation's Literals."""
    parts = typing.get_args(hint)
    return {part for part in parts if isinstance(part, str)}.union(
        *(_literals(p) for p in parts if not isinstance(p, str))
    )


def refused(place, folder, config) -> str:
    """The message for an adapter with this config."""
    config.save_pretrained(folder)
    with pytest.raises(ModelError) as raised:
        resolve_adapter("mine", str(folder), place.record)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("kind", [*sorted(BEFORE_PROMPT), *OTHERS])
def test_what_works_around_the_model_is_refused_by_name(place, tmp_path, kind):
    options = {"adapters": {}, "hidden_size": 32} if kind == "XLORA" else {}
    said = refused(place, tmp_path, PEFT_TYPE_TO_CONFIG_MAPPING[kind](task_type="CAUSAL_LM", **options))
    assert f"is a {kind} adapter, which" in said
    assert "only adapters that change weights" in said


def test_an_unknown_tuner_is_refused(place, tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LOOHA"}))
    with pytest.raises(ModelError, match='peft_type "LOOHA", which is not supported'):
        resolve_adapter("mine", str(tmp_path), place.record)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"alora_invocation_tokens": [5, 6], "task_type": "CAUSAL_LM"}, "sets alora_invocation_tokens"),
        ({"arrow_config": ArrowConfig(top_k=1)}, "chooses among other adapters"),
        ({"layer_replication": [(0, 2), (1, 3)]}, "builds a model of repeated layers"),
        ({"init_lora_weights": "corda", "corda_config": CordaConfig()}, "init_lora_weights: corda"),
    ],
)
def test_a_lora_that_a_forward_pass_cannot_give_is_refused(place, tmp_path, options, reason):
    assert reason in refused(place, tmp_path, LoraConfig(target_modules=["q_proj"], **options))


def test_an_adapter_with_random_numbers_at_inference_is_refused(place, tmp_path):
    config = PEFT_TYPE_TO_CONFIG_MAPPING["PVERA"](target_modules=["q_proj"], sample_at_inference=True)
    assert "draws random numbers" in refused(place, tmp_path, config)


def test_an_adapter_without_the_weights_that_its_layers_share_is_refused(place, tmp_path):
    folder = tuners.save(tuners.CASES["vblora"], place.arch, place.fresh(), tmp_path)
    weights = load_file(folder / "adapter_model.safetensors")
    del weights["base_model.vblora_vector_bank"]
    save_file(weights, folder / "adapter_model.safetensors")
    adapter = resolve_adapter("vblora", str(folder), place.record)
    with pytest.raises(ModelError, match=r"of its weights .* not found"), place.base.model(adapter):
        pass


def test_a_loftq_adapter_needs_bitsandbytes(place):
    folder = place.folder / "loftq"
    written = {"init_lora_weights": "loftq", "loftq_config": {"loftq_bits": 4, "loftq_iter": 1}}
    tuners.save(tuners.Case("LORA", written=written), place.arch, place.fresh(), folder)
    adapter = resolve_adapter("loftq", str(folder), place.record)
    if importlib.util.find_spec("bitsandbytes"):
        expected = by_peft(place, adapter)
        with place.base.model(adapter) as loaded:
            assert furthest(score(loaded, REQUESTS)[0]["logprobs"].to_pylist(), expected) < 1e-4
    else:
        with (
            pytest.raises(ModelError, match="cannot be applied to base: bitsandbytes is not"),
            place.base.model(adapter),
        ):
            pass
