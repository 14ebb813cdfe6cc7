"""Switch an adapter on over a base that is loaded already, and off again, leaving the base as it was to the bit."""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import replace

from peft import PeftModel
from transformers import AutoTokenizer

from vernacular.checkpoints import inputs
from vernacular.core.errors import ModelError
from vernacular.core.failures import ODD_FILES, is_out_of_memory, library_errors, reason
from vernacular.inference.load import LoadedModel


@contextlib.contextmanager
def adapted(loaded: LoadedModel, record: dict) -> Iterator[LoadedModel]:
    """The base `loaded` with the adapter of `record` (see `adapters.resolve_adapter`) switched on.

    PEFT puts its layers into the base in place and cannot take all of them out again (an embedding that was trained
    whole stays), so every module's children are remembered here and put back. Raises ModelError if PEFT refuses the
    adapter, or if a weight of it has no place in the base or is missing.
    """
    base = loaded.model
    children = [(parent, dict(parent._modules)) for parent in base.modules()]
    try:
        yield _switched_on(loaded, record)
    finally:
        for parent, modules in children:
            parent._modules.clear()
            parent._modules.update(modules)
        base.__dict__.pop("peft_config", None)
        base.__dict__.pop("_hf_peft_config_loaded", None)


def _switched_on(loaded: LoadedModel, record: dict) -> LoadedModel:
    name, adapter = record["name"], record["adapter"]
    options = {} if adapter["allow_pickle"] else {"use_safetensors": True}
    inputs.verify(record)
    try:
        with warnings.catch_warnings(action="ignore"), library_errors():  # what it warns of is an error below
            peft = PeftModel.from_pretrained(loaded.model, adapter["folder"], **options)
            report = peft.load_adapter(adapter["folder"], "default", **options)
    except ODD_FILES as error:
        if is_out_of_memory(error):
            raise ModelError(f"model {name}: its adapter does not fit in memory beside the base.") from error
        raise ModelError(
            f"model {name}: the adapter {adapter['source']} cannot be put on {record['base']}: {reason(error, adapter)}"
        ) from error
    for keys, what in ((report.unexpected_keys, "has no place in"), (report.missing_keys, "is missing for")):
        if keys:
            raise ModelError(
                f"model {name}: the adapter {adapter['source']} does not fit {record['base']}: "
                f"{len(keys)} of its weights ({sorted(keys)[0]}, …) {what} the base."
            )
    peft.eval().requires_grad_(False)
    tokenizer = loaded.tokenizer
    if adapter["own_tokenizer"]:  # the same words; the chat template may be its own
        tokenizer = _tokenizer(record)
    inputs.verify(record)  # what was written while the adapter was read
    facts = {key: adapter[key] for key in ("source", "revision", "type", "rank")}
    return replace(loaded, tokenizer=tokenizer, record=record, checks={}, notes={**loaded.notes, "adapter": facts})


def _tokenizer(record: dict):
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
