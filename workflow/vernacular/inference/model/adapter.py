"""Application of an adapter to a loaded base, and its removal.

PEFT inserts its modules into the base in place, so all modules of the base are recorded before and restored after. This
does not restore tensors that PEFT overwrites (trained biases, weights from which PiSSA subtracts its components):
`base.py` ensures that no other model is evaluated with such a tensor.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoTokenizer

from vernacular.checkpoints import inputs
from vernacular.checkpoints.tuners import put_on
from vernacular.core.errors import MachineError, ModelError
from vernacular.core.failures import ODD_FILES, is_lost_device, is_out_of_memory, library_errors, reason
from vernacular.inference.model.loaded import LoadedModel
from vernacular.types import ModelRecord


@contextlib.contextmanager
def adapted(loaded: LoadedModel, record: ModelRecord) -> Iterator[LoadedModel]:
    """Yield the base `loaded` with the adapter of `record` (see `adapters.resolve_adapter`) applied.

    Afterwards the base has its original modules; their tensors may have changed.

    Raises:
        ModelError: PEFT rejects the adapter, a weight has no counterpart in the base or is missing, or the model
            cannot run.
        MachineError: The device failed.
    """
    remembered = _remember(loaded.model)
    try:
        peft = _put_on(loaded, record)  # keep a reference: its modules may hold tensors that the layers share
        yield _loaded(loaded, record)
        del peft
    finally:
        _put_back(remembered)


def _remember(model: torch.nn.Module) -> list[tuple[torch.nn.Module, type, dict[str, tuple[Any, dict | None]]]]:
    """Return each module's class and attributes, and a copy of each dict (children, parameters, hooks)."""
    return [
        (module, type(module), {name: (value, _content(value)) for name, value in vars(module).items()})
        for module in model.modules()
    ]


def _content(value: Any) -> dict | None:
    return dict(value) if isinstance(value, dict) else None


def _put_back(remembered) -> None:
    for module, kind, attributes in remembered:
        if type(module) is not kind:
            module.__class__ = kind
        vars(module).clear()
        for name, (value, content) in attributes.items():
            if content is not None:  # the same dict object: hook handles refer to it
                value.clear()
                value.update(content)
            vars(module)[name] = value


def _put_on(loaded: LoadedModel, record: ModelRecord) -> PeftModel:
    name, adapter = record["name"], record["adapter"]
    where = f"model {name}: the adapter {adapter['source']}"
    inputs.verify(record)
    try:
        with library_errors():
            peft, unexpected, missing = put_on(loaded.model, adapter["folder"], allow_pickle=adapter["allow_pickle"])
            # some adapters load but cannot run: OLoRA on a layer that stores its weight transposed
            with torch.inference_mode():
                loaded.model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=loaded.device))
    except ODD_FILES as error:
        if is_out_of_memory(error):
            raise ModelError(f"model {name}: its adapter does not fit in memory in addition to the base.") from error
        if is_lost_device(error):
            raise MachineError(f"model {name}: {loaded.device} failed: {reason(error, record)}") from error
        raise ModelError(f"{where} cannot be applied to {record['base']}: {reason(error, adapter)}") from error
    for keys, what in ((unexpected, "have no counterpart in the base"), (missing, "were not found in its files")):
        if keys:
            raise ModelError(
                f"{where} does not fit {record['base']}: {len(keys)} of its weights ({sorted(keys)[0]}, …) {what}."
            )
    return peft


def _loaded(loaded: LoadedModel, record: ModelRecord) -> LoadedModel:
    adapter, tokenizer = record["adapter"], loaded.tokenizer
    if adapter["own_tokenizer"]:  # same vocabulary, but the chat template may differ
        tokenizer = _tokenizer(record)
    inputs.verify(record)  # detects files written while the adapter was read
    facts = {key: adapter[key] for key in ("source", "revision", "type", "rank")}
    return replace(loaded, tokenizer=tokenizer, record=record, checks={}, notes={**loaded.notes, "adapter": facts})


def _tokenizer(record: ModelRecord):
    """Load the adapter's own tokenizer, without running code from its directory.

    Raises ModelError if it cannot be loaded.
    """
    folder = record["adapter"]["folder"]
    try:
        with library_errors():
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            tokenizer("a")
            return tokenizer
    except ODD_FILES as error:
        raise ModelError(
            f"model {record['name']}: the tokenizer in {folder} cannot be loaded: {reason(error, record)}"
        ) from error
