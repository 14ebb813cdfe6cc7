"""Supported types of PEFT adapters: every tuner of PEFT is in one of three sets, with the reason.

A model is evaluated by its own forward pass, in batches that bypass PEFT's wrapper. An adapter must therefore work
inside the base's modules: one that needs the wrapper (to put vectors before the prompt, or to select an expert for each
text) would silently have no effect. In addition, its effect on a token must not depend on other texts or later tokens.
"""

import warnings
from typing import TYPE_CHECKING

from vernacular.core.errors import suggest

if TYPE_CHECKING:
    import torch
    from peft import PeftModel

MODULE_TYPES = frozenset({
    "LORA", "ADALORA", "ADAMSS", "ADAPTION_PROMPT", "BEFT", "BOFT", "C3A", "DEFT", "DELORA", "FOURIERFT",
    "FROD", "GLORA", "GRALORA", "HIRA", "HRA", "IA3", "LN_TUNING", "LOHA", "LOKR", "MISS", "OFT", "OSF",
    "PEANUT", "PSOFT", "PVERA", "RANDLORA", "ROAD", "SHIRA", "SUPERTUNING", "TINYLORA", "TRAINABLE_TOKENS",
    "UNILORA", "VBLORA", "VERA", "WAVEFT",
})  # fmt: skip
PROMPT_TYPES = frozenset({
    "PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "CPT", "CARTRIDGE",
})  # fmt: skip
UNSUPPORTED_TYPES = {
    "POLY": "chooses among its skills by the ID of a task",
    "XLORA": "mixes other adapters by a second pass over each text",
    "SHADOW": "runs a second network in addition to the base",
    "LILY": "weights its experts by the mean of all tokens of a batch, including padding and later tokens",
}

_SUPPORTED_HINT = "only adapters that change weights (LoRA and related types) can be evaluated."
_OPTIONS = {
    "alora_invocation_tokens": "is activated by tokens in the text (aLoRA)",
    "arrow_config": "chooses among other adapters for each token (Arrow)",
    "layer_replication": "builds a model of repeated layers; merge it into its base and evaluate that",
    "sample_at_inference": "draws random numbers in every forward pass (PVeRA)",
}


def unsupported_reason(config: dict) -> str | None:
    """Return why an adapter with this config (adapter_config.json) cannot be evaluated, or None if it can."""
    peft_type = str(config["peft_type"])
    if peft_type in PROMPT_TYPES:
        return f"is a {peft_type} adapter, which inserts vectors before the prompt; {_SUPPORTED_HINT}"
    if peft_type in UNSUPPORTED_TYPES:
        return f"is a {peft_type} adapter, which {UNSUPPORTED_TYPES[peft_type]}; {_SUPPORTED_HINT}"
    if peft_type not in MODULE_TYPES:
        return f'has peft_type "{peft_type}", which is not supported.{suggest(peft_type, sorted(MODULE_TYPES))}'
    for option, behavior in _OPTIONS.items():
        if config.get(option):
            return f"sets {option}: it {behavior}."
    if str(config.get("init_lora_weights")).startswith("corda"):
        return (
            "has init_lora_weights: corda, which requires the covariances of its training data. Save it as a LoRA: "
            "save_pretrained(…, path_initial_model_for_weight_conversion=…)."
        )
    return None


# Some initializations draw random numbers (pissa_niter_4 for its SVD) and change the base accordingly, so that without
# a fixed seed an adapter's outputs would depend on what ran before it.
_SEED = 0


def apply_adapter(model: "torch.nn.Module", adapter_dir: str, *, allow_pickle: bool) -> "tuple[PeftModel, list, list]":
    """Apply an adapter in place; return (PEFT's model, weights without counterpart, missing weights).

    Raises what PEFT raises. The random state of the process is unchanged.
    """
    import torch  # imported here, with PEFT: checking an adapter's config needs neither, and both take seconds
    from peft import PeftModel

    options = {} if allow_pickle else {"use_safetensors": True}
    devices = range(torch.cuda.device_count())
    # PEFT's warnings repeat what the returned lists contain
    with torch.random.fork_rng(devices), warnings.catch_warnings(action="ignore"):
        torch.manual_seed(_SEED)
        peft = PeftModel.from_pretrained(model, adapter_dir, **options)
        report = peft.load_adapter(adapter_dir, "default", **options)  # again: this call reports misfitting weights
    return peft.eval().requires_grad_(False), report.unexpected_keys, _missing(peft, report.missing_keys)


def _missing(peft: "PeftModel", names: list[str]) -> list[str]:
    """Return the weights reported as missing that are not loaded under another name (VB-LoRA's layers share one)."""
    weights = peft.state_dict(keep_vars=True)
    loaded = {id(weight) for name, weight in weights.items() if name not in names}
    return [name for name in names if id(weights.get(name)) not in loaded]
