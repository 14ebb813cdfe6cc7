"""Values that a local copy of a served model gives for a few texts, for the last check of the probe."""

from pathlib import Path

import torch

from vernacular.checkpoints.resolve import resolve
from vernacular.inference.model.load import load
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.server import checks
from vernacular.inference.server.forms import KNOWN, AnswerError, SpanForm


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


TOLERANCE = 0.5  # nats, of the mean over a text's tokens: a quantized copy differs by less, another model by more


def check_known_answers(loaded: LoadedModel, form: SpanForm, known: dict[str, list[float]] | None) -> str:
    """Compare the values of texts with `known`, {text: log-probabilities in nats}; None: there is no local copy."""
    if known is None:
        return "not run: no local copy (reference) is configured"
    means = []
    for text, expected in known.items():
        mean, _ = checks.deviations(checks.values_of(form.score(checks.ids_of(loaded, text), 0)), expected)
        if mean > TOLERANCE:
            raise AnswerError(KNOWN, f"{form.name}: values of the local copy differ by {mean:.2f} nats per token")
        means.append(mean)
    return f"mean difference {max(means):.4f} nats per token"
