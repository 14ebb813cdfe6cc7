"""An adapter put on a model in memory, the way PEFT does it, and with the same numbers every time."""

import warnings

import torch
from peft import PeftModel

# Some initializations draw random numbers (pissa_niter_4 for its SVD) and change the base by what they find, so that
# an adapter's numbers would depend on what ran before it.
_SEED = 0


def put_on(model: torch.nn.Module, folder: str, *, allow_pickle: bool) -> tuple[PeftModel, list, list]:
    """Put the adapter in `folder` on `model`, in place.

    Returns the PEFT model, for inference, with the names of the adapter's weights that have no place in it, and of
    weights that it lacks. Raises what PEFT raises. The random state of the process stays as it was.
    """
    options = {} if allow_pickle else {"use_safetensors": True}
    devices = range(torch.cuda.device_count())
    # what PEFT warns of is in the lists that are returned
    with torch.random.fork_rng(devices), warnings.catch_warnings(action="ignore"):
        torch.manual_seed(_SEED)
        peft = PeftModel.from_pretrained(model, folder, **options)
        report = peft.load_adapter(folder, "default", **options)  # again: this returns what did not fit
    return peft.eval().requires_grad_(False), report.unexpected_keys, _missing(peft, report.missing_keys)


def _missing(peft: PeftModel, names: list[str]) -> list[str]:
    """Of the weights that PEFT reports as missing, those not loaded under another name (VB-LoRA's layers share one)."""
    weights = peft.state_dict(keep_vars=True)
    loaded = {id(weight) for name, weight in weights.items() if name not in names}
    return [name for name in names if id(weights.get(name)) not in loaded]
