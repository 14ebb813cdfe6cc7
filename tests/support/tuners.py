"""PEFT adapters of every type for tests: cases by name, each saved by PEFT like a trained adapter."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import peft
import torch
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from peft.tuners.lora.config import BdLoraConfig, EvaConfig, KasaConfig, MontecloraConfig, VeloraConfig

ARCHITECTURES = ("llama", "gpt2", "qwen2")  # separate projections, untied head; Conv1D, tied; biases, tied

_LLAMA = {
    "attention": ["q_proj", "v_proj"],
    "square": ["q_proj"],
    "down": "down_proj",
    "embedding": ["embed_tokens"],
    "norm": ["input_layernorm", "post_attention_layernorm", "norm"],
    "layers": "layers",
}
MODULES = {
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "gpt2": {
        "attention": ["c_attn"],
        "square": ["attn.c_proj"],
        "down": "mlp.c_proj",
        "embedding": ["wte"],
        "norm": ["ln_1", "ln_2", "ln_f"],
        "layers": "h",
    },
}


@dataclass(frozen=True)
class Case:
    """One type of adapter: PEFT's type and its config options, which depend on the architecture's modules."""

    tuner: str
    options: Callable[[dict], dict] = lambda modules: {}
    initialize: Callable | None = None  # called with the PEFT model before training
    edits_base: bool = False  # whether loading it changes tensors of a base with biases
    unsupported_on: frozenset[str] = frozenset()  # architectures without PEFT support
    broken_on: frozenset[str] = frozenset()  # architectures whose saved adapter PEFT cannot run
    config_overrides: dict = field(default_factory=dict)  # written to the saved config, as other training code does
    scale: float = 0.05  # standard deviation of the change of each parameter


def lora(edits_base: bool = False, **options) -> Case:
    """Return a LoRA of rank 4 with further options."""
    return Case("LORA", lambda _: options, edits_base=edits_base)


def _batches(model):
    torch.manual_seed(0)
    return [{"input_ids": torch.randint(5, 100, (2, 16))} for _ in range(4)]


def _eva(model):
    peft.initialize_lora_eva_weights(model, _batches(model), show_progress_bar=False)


def _targeting(key: str, **options) -> Callable[[dict], dict]:
    return lambda modules: {"target_modules": modules[key], **options}


TOKENS = list(range(3, 303, 3))
CONV1D = frozenset({"gpt2"})

CASES = {
    "lora": lora(),
    "lora gaussian": lora(init_lora_weights="gaussian"),
    "lora random": lora(init_lora_weights=False),
    "lora pissa": lora(init_lora_weights="pissa", edits_base=True),
    "lora pissa_niter_4": lora(init_lora_weights="pissa_niter_4", edits_base=True),
    "lora olora": Case("LORA", lambda _: {"init_lora_weights": "olora"}, edits_base=True, broken_on=CONV1D),
    "lora orthogonal": lora(init_lora_weights="orthogonal"),
    "lora mica": lora(init_lora_weights="mica"),
    "lora eva": Case("LORA", lambda _: {"init_lora_weights": "eva", "eva_config": EvaConfig()}, initialize=_eva),
    "lora lora_ga": Case("LORA", config_overrides={"init_lora_weights": "lora_ga"}),
    "lora dora": lora(use_dora=True),
    "lora rslora": lora(use_rslora=True),
    "lora bias all": Case("LORA", lambda _: {"bias": "all"}, edits_base=True),
    "lora bias lora_only": lora(bias="lora_only", edits_base=True),
    "lora lora_bias": lora(lora_bias=True),
    "lora patterns": Case(
        "LORA",
        lambda m: {
            "rank_pattern": {m["square"][0]: 2},
            "alpha_pattern": {m["square"][0]: 3},
            "target_modules": [*m["square"], m["down"]],
        },
    ),
    "lora layers_to_transform": Case("LORA", lambda m: {"layers_to_transform": [1], "layers_pattern": m["layers"]}),
    "lora all-linear": lora(target_modules="all-linear"),
    "lora regex": Case("LORA", lambda m: {"target_modules": rf".*\.{m['down'].replace('.', '[.]')}"}),
    "lora lm_head": lora(target_modules=["lm_head"]),
    "lora embedding": Case("LORA", _targeting("embedding")),
    "lora embedding and attention": Case("LORA", lambda m: {"target_modules": [*m["embedding"], *m["attention"]]}),
    "lora embedding and lm_head": Case("LORA", lambda m: {"target_modules": [*m["embedding"], "lm_head"]}),
    "lora embedding dora": Case("LORA", _targeting("embedding", use_dora=True)),
    "lora tied": Case("LORA", lambda m: {"target_modules": m["embedding"], "ensure_weight_tying": True}),
    "lora trainable_token_indices": lora(trainable_token_indices=TOKENS),
    "lora trainable_token_indices by module": Case(
        "LORA", lambda m: {"trainable_token_indices": {m["embedding"][0]: TOKENS}}
    ),
    "lora saved lm_head": lora(modules_to_save=["lm_head"]),
    "lora saved embedding": Case("LORA", lambda m: {"modules_to_save": m["embedding"]}),
    "lora saved embedding and lm_head": Case("LORA", lambda m: {"modules_to_save": [*m["embedding"], "lm_head"]}),
    "lora saved norm": Case("LORA", lambda m: {"modules_to_save": m["norm"]}),
    "lora target_parameters": Case(
        "LORA", lambda m: {"target_modules": [], "target_parameters": [m["square"][0] + ".weight"]}
    ),
    "lora kasa": Case("LORA", lambda _: {"kasa_config": KasaConfig()}, edits_base=True, unsupported_on=CONV1D),
    "lora velora": lora(velora_config=VeloraConfig()),
    "lora monteclora": lora(monteclora_config=MontecloraConfig()),
    "lora bdlora": Case(
        "LORA",
        lambda m: {"use_bdlora": BdLoraConfig(target_modules_bd_a=m["attention"], nblocks=2)},
        unsupported_on=CONV1D,
    ),
    "adalora": Case("ADALORA", lambda _: {"total_step": 10, "init_r": 4, "target_r": 2, "lora_alpha": 8}),
    "adamss": Case("ADAMSS", lambda _: {"r": 8, "num_subspaces": 2}, unsupported_on=CONV1D),
    "adaption prompt": Case(
        "ADAPTION_PROMPT", lambda _: {"adapter_len": 4, "adapter_layers": 2}, unsupported_on=frozenset({"qwen2"})
    ),
    "beft": Case("BEFT", _targeting("square"), unsupported_on=CONV1D),
    "boft": Case("BOFT", _targeting("square", boft_block_size=4), unsupported_on=CONV1D),
    "boft bias": Case(
        "BOFT", _targeting("square", boft_block_size=4, bias="boft_only"), edits_base=True, unsupported_on=CONV1D
    ),
    "c3a": Case("C3A", _targeting("square", block_size=8), unsupported_on=CONV1D),
    "deft": Case("DEFT", lambda _: {"r": 4}),
    "delora": Case("DELORA", lambda _: {"r": 4}, unsupported_on=CONV1D),
    "fourierft": Case("FOURIERFT", lambda _: {"n_frequency": 50}),
    "frod": Case("FROD", lambda _: {"progressbar": False}),
    "glora": Case("GLORA", lambda _: {"r": 4}, unsupported_on=CONV1D),
    "gralora": Case("GRALORA", lambda _: {"r": 8, "alpha": 8}),
    "hira": Case("HIRA", lambda _: {"r": 4}),
    "hra": Case("HRA", lambda _: {"r": 4}, unsupported_on=CONV1D),
    "ia3": Case("IA3", lambda m: {"target_modules": [*m["attention"], m["down"]], "feedforward_modules": [m["down"]]}),
    "ln tuning": Case("LN_TUNING", _targeting("norm")),
    "loha": Case("LOHA", lambda _: {"r": 4}, unsupported_on=CONV1D),
    "lokr": Case("LOKR", lambda _: {"r": 4}, unsupported_on=CONV1D),
    "miss": Case("MISS", lambda _: {"r": 4}, unsupported_on=CONV1D),
    "miss bat": Case("MISS", lambda _: {"r": 4, "init_weights": "bat"}, unsupported_on=CONV1D),
    "oft": Case("OFT", lambda _: {"r": 0, "oft_block_size": 8}, unsupported_on=CONV1D),
    "osf": Case("OSF", lambda _: {"effective_rank": 8}, unsupported_on=CONV1D),
    "peanut": Case("PEANUT", lambda _: {"r": 4}, unsupported_on=CONV1D),
    "psoft": Case("PSOFT", lambda _: {"r": 4, "psoft_alpha": 4}, unsupported_on=CONV1D),
    "pvera": Case("PVERA", lambda _: {"r": 8}),
    "randlora": Case("RANDLORA", lambda _: {"r": 4}),
    "road": Case("ROAD", lambda _: {"group_size": 8}, unsupported_on=CONV1D),
    "shira": Case("SHIRA", _targeting("square", r=2, random_seed=1), unsupported_on=CONV1D),
    "supertuning": Case("SUPERTUNING", lambda _: {"sparsity": 0.9}, unsupported_on=CONV1D),
    "tinylora": Case("TINYLORA", lambda _: {"u": 8}),
    "trainable tokens": Case("TRAINABLE_TOKENS", _targeting("embedding", token_indices=TOKENS)),
    "unilora": Case("UNILORA", lambda _: {"theta_d_length": 64}, scale=0.5),
    "vblora": Case("VBLORA", lambda _: {"num_vectors": 16, "vector_length": 16, "r": 4}),
    "vera": Case("VERA", lambda _: {"r": 8}),
    "waveft": Case("WAVEFT", lambda _: {"n_frequency": 50}),
}


def config_of(case: Case, arch: str, **overrides):
    """Return PEFT's config of a case for an architecture."""
    options = {"task_type": "CAUSAL_LM", **case.options(MODULES[arch]), **overrides}
    if case.tuner == "LORA":
        options = {"r": 4, "lora_alpha": 8, **options}
    if case.tuner not in ("ADAPTION_PROMPT",):
        options.setdefault("target_modules", MODULES[arch]["attention"])
    return PEFT_TYPE_TO_CONFIG_MAPPING[case.tuner](**options)


def save(case: Case, arch: str, base: torch.nn.Module, directory, *, seed: int = 0, **overrides):
    """Add the adapter to a copy of `base`, perturb its trainable parameters, and save it in `directory`."""
    torch.manual_seed(seed)
    model = copy.deepcopy(base)
    config = config_of(case, arch, **overrides)
    model = peft.get_peft_model(model, config)
    if case.initialize:
        case.initialize(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError(f"PEFT does not support {case.tuner} on any module of this base.")
    with torch.no_grad():
        for parameter in trained:
            parameter += case.scale * torch.randn(parameter.shape)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "README.md").write_text(
        "---\n---\n"
    )  # else, PEFT compiles a template, which takes a fifth of the time
    model.save_pretrained(directory)
    config = directory / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | case.config_overrides))
    return directory


def edits_base(case: Case, arch: str) -> bool:
    """Return whether loading the adapter changes tensors of the base; without biases there are none to change."""
    only_biases = case.edits_base and "bias" in case.options(MODULES[arch])
    return case.edits_base and not (only_biases and arch == "llama")
