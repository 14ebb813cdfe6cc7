"""Known answers: the values that a local copy of the served model gives for a few texts."""

from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.server import checks
from vernacular.inference.server.forms import KNOWN, AnswerError, SpanForm

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
