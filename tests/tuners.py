"""PEFT adapters of every kind for tests: cases by name, each saved as PEFT saves a trained one."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import peft
import torch
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from peft.tuners.lora.config import BdLoraConfig, CordaConfig, EvaConfig, KasaConfig, MontecloraConfig, VeloraConfig
from peft.tuners.lora.corda import preprocess_corda

ARCHITECTURES = ("llama", "gpt2", "qwen2")  # separate projections and an own head; Conv1D and tied; biases and tied

_LLAMA = {
    "attention": ["q_proj", "v_proj"],
    "square": ["q_proj"],
    "down": "down_proj",
    "embedding": "embed_tokens",
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
        "embedding": "wte",
        "norm": ["ln_1", "ln_2", "ln_f"],
        "layers": "h",
    },
}


@dataclass(frozen=True)
class Case:
    """One kind of adapter: PEFT's type and the options of its config, which depend on the architecture's modules."""

    tuner: str
    options: Callable[[dict], dict] = lambda modules: {}
    prepare: Callable | None = None  # (model, config): what an initialization wants done before
    after: Callable | None = None  # (PEFT model): and after
    edits: bool = False  # does loading it change tensors of the base?
    not_on: frozenset[str] = frozenset()  # architectures that PEFT itself does not put it on


def lora(edits: bool = False, **options) -> Case:
    """A LoRA of rank 4 with further options."""
    return Case("LORA", lambda _: options, edits=edits)


def _batches(model):
    torch.manual_seed(0)
    return [{"input_ids": torch.randint(5, 100, (2, 16))} for _ in range(4)]


def _corda(model, config):
    preprocess_corda(model, config, run_model=lambda: [model(**batch) for batch in _batches(model)])


def _eva(model):
    peft.initialize_lora_eva_weights(model, _batches(model), show_progress_bar=False)


def _on(key: str, **options) -> Callable[[dict], dict]:
    return lambda modules: {"target_modules": modules[key], **options}


CONV1D = frozenset({"gpt2"})

CASES = {
    "lora": lora(),
    "lora gaussian": lora(init_lora_weights="gaussian"),
    "lora random": lora(init_lora_weights=False),
    "lora pissa": lora(init_lora_weights="pissa", edits=True),
    "lora pissa_niter_4": lora(init_lora_weights="pissa_niter_4", edits=True),
    "lora olora": lora(init_lora_weights="olora", edits=True),
    "lora orthogonal": lora(init_lora_weights="orthogonal"),
    "lora mica": lora(init_lora_weights="mica"),
    "lora loftq": lora(init_lora_weights="loftq", loftq_config={"loftq_bits": 4, "loftq_iter": 1}, edits=True),
    "lora eva": Case("LORA", lambda _: {"init_lora_weights": "eva", "eva_config": EvaConfig()}, after=_eva),
    "lora dora": lora(use_dora=True),
    "lora rslora": lora(use_rslora=True),
    "lora bias all": lora(bias="all", edits=True),
    "lora bias lora_only": lora(bias="lora_only", edits=True),
    "lora lora_bias": lora(lora_bias=True),
    "lora patterns": Case("LORA", lambda m: {"rank_pattern": {m["square"][0]: 2}, "alpha_pattern": {m["square"][0]: 3},
                                             "target_modules": [*m["square"], m["down"]]}),
    "lora layers_to_transform": Case("LORA", lambda m: {"layers_to_transform": [1], "layers_pattern": m["layers"]}),
    "lora all-linear": lora(target_modules="all-linear"),
    "lora regex": Case("LORA", lambda m: {"target_modules": rf".*\.{m['down'].replace('.', '[.]')}"}),
    "lora lm_head": lora(target_modules=["lm_head"]),
    "lora embedding": Case("LORA", _on("embedding")),
    "lora embedding and attention": Case("LORA", lambda m: {"target_modules": [m["embedding"], *m["attention"]]}),
    "lora embedding and lm_head": Case("LORA", lambda m: {"target_modules": [m["embedding"], "lm_head"]}),
    "lora embedding dora": Case("LORA", _on("embedding", use_dora=True)),
    "lora tied": Case("LORA", lambda m: {"target_modules": [m["embedding"]], "ensure_weight_tying": True}),
    "lora trainable_token_indices": lora(trainable_token_indices=[5, 60, 61]),
    "lora trainable_token_indices by module": Case(
        "LORA", lambda m: {"trainable_token_indices": {m["embedding"]: [5, 60, 61]}}
    ),
    "lora saved lm_head": lora(modules_to_save=["lm_head"]),
    "lora saved embedding": Case("LORA", lambda m: {"modules_to_save": [m["embedding"]]}),
    "lora saved embedding and lm_head": Case("LORA", lambda m: {"modules_to_save": [m["embedding"], "lm_head"]}),
    "lora saved norm": Case("LORA", lambda m: {"modules_to_save": m["norm"]}),
    "lora target_parameters": Case("LORA", lambda m: {"target_modules": [], "target_parameters": [m["square"][0] + ".weight"]}),
    "lora kasa": lora(kasa_config=KasaConfig(), edits=True),
    "lora velora": lora(velora_config=VeloraConfig()),
    "lora monteclora": lora(monteclora_config=MontecloraConfig()),
    "lora bdlora": Case("LORA", lambda m: {"use_bdlora": BdLoraConfig(target_modules_bd_a=m["square"], nblocks=2)}),
    "lora layer_replication": Case("LORA", lambda _: {"layer_replication": [(0, 2), (1, 3)]}, edits=True),
    "adalora": Case("ADALORA", lambda _: {"total_step": 10, "init_r": 4, "target_r": 2, "lora_alpha": 8}),
    "adamss": Case("ADAMSS", lambda _: {"r": 8, "num_subspaces": 2}),
    "adaption prompt": Case("ADAPTION_PROMPT", lambda _: {"adapter_len": 4, "adapter_layers": 2}),
    "beft": Case("BEFT", _on("square")),
    "boft": Case("BOFT", _on("square", boft_block_size=4)),
    "boft bias": Case("BOFT", _on("square", boft_block_size=4, bias="boft_only"), edits=True),
    "c3a": Case("C3A", _on("square", block_size=8)),
    "deft": Case("DEFT", lambda _: {"r": 4}),
    "delora": Case("DELORA", lambda _: {"r": 4}),
    "fourierft": Case("FOURIERFT", lambda _: {"n_frequency": 50}),
    "frod": Case("FROD", lambda _: {"progressbar": False}),
    "glora": Case("GLORA", lambda _: {"r": 4}),
    "gralora": Case("GRALORA", lambda _: {"r": 8, "alpha": 8}),
    "hira": Case("HIRA", lambda _: {"r": 4}),
    "hra": Case("HRA", lambda _: {"r": 4}),
    "ia3": Case("IA3", lambda m: {"target_modules": [*m["attention"], m["down"]], "feedforward_modules": [m["down"]]}),
    "lily": Case("LILY", lambda _: {"r": 4}),
    "ln tuning": Case("LN_TUNING", _on("norm")),
    "loha": Case("LOHA", lambda _: {"r": 4}),
    "lokr": Case("LOKR", lambda _: {"r": 4}),
    "miss": Case("MISS", lambda _: {"r": 4}),
    "miss bat": Case("MISS", lambda _: {"r": 4, "init_weights": "bat"}),
    "oft": Case("OFT", lambda _: {"r": 0, "oft_block_size": 8}),
    "osf": Case("OSF", lambda _: {"effective_rank": 8}),
    "peanut": Case("PEANUT", lambda _: {"r": 4}),
    "psoft": Case("PSOFT", lambda _: {"r": 4, "psoft_alpha": 4}),
    "pvera": Case("PVERA", lambda _: {"r": 8}),
    "randlora": Case("RANDLORA", lambda _: {"r": 4}),
    "road": Case("ROAD", lambda _: {"group_size": 8}),
    "shira": Case("SHIRA", _on("square", r=2, random_seed=1)),
    "supertuning": Case("SUPERTUNING", lambda _: {"sparsity": 0.9}),
    "tinylora": Case("TINYLORA", lambda _: {"u": 8}),
    "trainable tokens": Case("TRAINABLE_TOKENS", _on("embedding", token_indices=[5, 60, 61])),
    "unilora": Case("UNILORA", lambda _: {"theta_d_length": 64}),
    "vblora": Case("VBLORA", lambda _: {"num_vectors": 16, "vector_length": 16, "r": 4}),
    "vera": Case("VERA", lambda _: {"r": 8}),
    "waveft": Case("WAVEFT", lambda _: {"n_frequency": 50}),
}


def config_of(case: Case, arch: str, **further):
    """PEFT's config of a case on an architecture."""
    options = {"task_type": "CAUSAL_LM", **case.options(MODULES[arch]), **further}
    if case.tuner == "LORA":
        options = {"r": 4, "lora_alpha": 8, **options}
    if case.tuner not in ("ADAPTION_PROMPT",):
        options.setdefault("target_modules", MODULES[arch]["attention"])
    return PEFT_TYPE_TO_CONFIG_MAPPING[case.tuner](**options)


def save(case: Case, arch: str, base: torch.nn.Module, folder, *, seed: int = 0, scale: float = 0.05, **further):
    """Put the case on a copy of `base`, move all that it trains away from its start, and save it in `folder`."""
    torch.manual_seed(seed)
    model = copy.deepcopy(base)
    config = config_of(case, arch, **further)
    if case.prepare:
        case.prepare(model, config)
    model = peft.get_peft_model(model, config)
    if case.after:
        case.after(model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += scale * torch.randn(parameter.shape)
    model.save_pretrained(folder)
    return folder
