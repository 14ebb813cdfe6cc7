"""Switch an adapter on over a base that is loaded already, and off again.

PEFT puts its modules into the base in place, so all modules of the base are remembered before, and put back after. What
that cannot undo is a tensor that PEFT overwrites (biases that were trained, weights less what PiSSA took out of them):
`base.py` sees to it that no other model is asked with such a tensor.
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
    """Yield the base `loaded` with the adapter of `record` (see `adapters.resolve_adapter`) switched on.

    Afterwards the base has its own modules again; their tensors may have changed. Raises ModelError if PEFT rejects the
    adapter, if a weight of it has no place in the base or is missing, or if the base cannot run with it.
    """
    remembered = _remember(loaded.model)
    try:
        peft = _put_on(loaded, record)  # kept alive: a module of it may hold what its layers share
        yield _loaded(loaded, record)
        del peft
    finally:
        _put_back(remembered)


def _remember(model: torch.nn.Module) -> list[tuple[torch.nn.Module, type, dict[str, tuple[Any, dict | None]]]]:
    """Each module's class and attributes, with the content of those that are dicts (children, parameters, hooks)."""
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
            if content is not None:  # the same dict, which handles of hooks refer to
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
            # some that load cannot run: PEFT's OLoRA on a layer that stores its weight transposed
            with torch.inference_mode():
                loaded.model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=loaded.device))
    except ODD_FILES as error:
        if is_out_of_memory(error):
            raise ModelError(f"model {name}: its adapter does not fit in memory beside the base.") from error
        if is_lost_device(error):
            raise MachineError(f"model {name}: {loaded.device} failed: {reason(error, record)}") from error
        raise ModelError(f"{where} cannot be put on {record['base']}: {reason(error, adapter)}") from error
    for keys, what in ((unexpected, "has no place in"), (missing, "is missing for")):
        if keys:
            raise ModelError(
                f"{where} does not fit {record['base']}: "
                f"{len(keys)} of its weights ({sorted(keys)[0]}, …) {what} the base."
            )
    return peft


def _loaded(loaded: LoadedModel, record: ModelRecord) -> LoadedModel:
    adapter, tokenizer = record["adapter"], loaded.tokenizer
    if adapter["own_tokenizer"]:  # the same words; the chat template may be its own
        tokenizer = _tokenizer(record)
    inputs.verify(record)  # what was written while the adapter was read
    facts = {key: adapter[key] for key in ("source", "revision", "type", "rank")}
    return replace(loaded, tokenizer=tokenizer, record=record, checks={}, notes={**loaded.notes, "adapter": facts})


def _tokenizer(record: ModelRecord):
    """The adapter's own. Raises ModelError where it cannot be loaded; code that it may bring is not run."""
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
