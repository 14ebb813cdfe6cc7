"""Application of an adapter to a loaded base, and its removal.

PEFT inserts its modules into the base in place, so all modules of the base are recorded before and restored after. This
does not restore tensors that PEFT overwrites (trained biases, weights from which PiSSA subtracts its components):
`load.py` ensures that no other model is evaluated with such a tensor.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from vernacular.checkpoints import inputs
from vernacular.checkpoints.tuners import apply_adapter
from vernacular.core.errors import MachineError, ModelError, first_of
from vernacular.core.library_errors import (
    LOADING_ERRORS,
    describe_error,
    is_lost_device,
    is_out_of_memory,
    wrap_library_errors,
)
from vernacular.core.model_record import ModelRecord
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.model.tokenization import load_tokenizer

if TYPE_CHECKING:
    from peft import PeftModel  # not at run time: a base without adapters does not need it


@contextlib.contextmanager
def use_adapter(loaded: LoadedModel, record: ModelRecord) -> Iterator[LoadedModel]:
    """Yield the base with the adapter of `record` applied; afterwards, it has its modules, if not their tensors.

    Raises ModelError if the adapter is rejected, does not fit or cannot run, and MachineError if the device failed.
    """
    saved_modules = _save_modules(loaded.model)
    try:
        peft, has_effect = _apply(loaded, record)  # keep a reference: its modules may hold tensors that layers share
        adapter, tokenizer = record.adapter, loaded.tokenizer
        if adapter.own_tokenizer:  # same vocabulary, but the chat template may differ
            tokenizer = load_tokenizer(record, adapter.directory)  # without running code from its directory
        inputs.verify(record)  # detects files written while the adapter was read
        note = {key: getattr(adapter, key) for key in ("source", "revision", "type", "rank")}
        note |= {} if has_effect else {"without_effect": True}
        yield replace(loaded, tokenizer=tokenizer, record=record, checks={}, notes={**loaded.notes, "adapter": note})
        del peft
    finally:
        _restore_modules(saved_modules)


def _save_modules(model: torch.nn.Module) -> list[tuple[torch.nn.Module, type, dict[str, tuple[Any, dict | None]]]]:
    """Return each module's class and attributes, and a copy of each dict (children, parameters, hooks)."""

    def saved(value: Any) -> tuple[Any, dict | None]:
        return value, dict(value) if isinstance(value, dict) else None

    return [(m, type(m), {name: saved(value) for name, value in vars(m).items()}) for m in model.modules()]


def _restore_modules(saved_modules) -> None:
    for module, module_class, attributes in saved_modules:
        if type(module) is not module_class:
            module.__class__ = module_class
        vars(module).clear()
        for name, (value, dict_copy) in attributes.items():
            if dict_copy is not None:  # the same dict object: hook handles refer to it
                value.clear()
                value.update(dict_copy)
            vars(module)[name] = value


_PROBE = 8  # tokens
_NO_EFFECT = 1e-6  # difference of logits, relative to the largest: rounding


def _apply(loaded: LoadedModel, record: ModelRecord) -> "tuple[PeftModel, bool]":
    """Apply the adapter; return (PEFT's model, whether any output for a few tokens differs from that of the base)."""
    name, adapter = record.name, record.adapter
    label = f"model {name}: the adapter {adapter.source}"
    inputs.verify(record)
    probe = torch.linspace(0, loaded.n_embeddings - 1, _PROBE, device=loaded.device).long()[None]
    try:
        with torch.inference_mode():
            base_logits = loaded.model(input_ids=probe).logits
        with wrap_library_errors():
            permissions = {"allow_pickle": adapter.allow_pickle}
            peft, unexpected, missing = apply_adapter(loaded.model, adapter.directory, **permissions)
            # some adapters load but cannot run: OLoRA on a layer that stores its weight transposed
            with torch.inference_mode():
                difference = (loaded.model(input_ids=probe).logits - base_logits).abs().amax()
            is_rounding = float(difference) <= _NO_EFFECT * float(base_logits.abs().amax())  # False if it is NaN
            # single tokens that are trained need not be among those tested
            trains_tokens = any("trainable_tokens_delta" in name for name, _ in peft.named_parameters())
    except LOADING_ERRORS as error:
        if is_out_of_memory(error):
            raise ModelError(
                f"model {name}: its adapter does not fit in memory in addition to the base. "
                "Set dtype: bfloat16 or a quantization, or use more devices."
            ) from error
        if is_lost_device(error):
            raise MachineError(f"model {name}: {loaded.device} failed: {describe_error(error, record)}") from error
        reason = describe_error(error, record | permissions)
        raise ModelError(f"{label} cannot be applied to {record.base}: {reason}") from error
    for keys, problem in ((unexpected, "have no counterpart in the base"), (missing, "were not found in its files")):
        if keys:
            raise ModelError(
                f"{label} does not fit {record.base}: {len(keys)} of its weights ({first_of(sorted(keys))}) {problem}."
            )
    return peft, trains_tokens or not is_rounding
