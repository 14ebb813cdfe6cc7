"""Values of a local copy of a served model, for the last check of the probe."""

from pathlib import Path

import torch

from vernacular.checkpoints.resolve import resolve
from vernacular.inference.model.load import load
from vernacular.inference.server import checks


def known_answers(name: str, source: str, conversion_dir: Path) -> dict[str, list[float]]:
    """Return {text: log-probabilities of its tokens, nats} of the model at `source`, in float32 on the CPU.

    The first token has none, as in `checks.values_of`. Raises ModelError if the model cannot be loaded.
    """
    record = resolve(name, source, conversion_dir, kind="causal") | {"dtype": "float32", "device": "cpu"}
    loaded = load(record)
    answers = {}
    for text in checks.TEXTS:
        ids = torch.tensor(checks.ids_of(loaded, text))
        with torch.inference_mode():
            logits = loaded.model(input_ids=ids[None]).logits[0, :-1].float()
        answers[text] = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0].tolist()
    return answers
