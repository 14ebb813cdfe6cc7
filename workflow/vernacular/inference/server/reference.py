"""Values of a local copy of a served model, for the last check of the probe."""

from pathlib import Path

from vernacular.checkpoints.resolve import resolve
from vernacular.inference.journal import MemoryJournal
from vernacular.inference.model.load import load
from vernacular.inference.scoring.execute import build_path, score_causal
from vernacular.inference.scoring.prepare import PreparedRequest
from vernacular.inference.server import checks


def known_answers(name: str, source: str, conversion_dir: Path) -> dict[str, list[float]]:
    """Return {text: log-probabilities of its tokens, nats} of the model at `source`, in float32 on the CPU.

    Raises ModelError if it cannot be loaded.
    """
    record = resolve(name, source, conversion_dir, kind="causal") | {"dtype": "float32", "device": "cpu", "bos": "auto"}
    loaded = load(record)
    answers = {}
    for text in checks.TEXTS:
        ids = checks.ids_of(loaded, text)
        request = PreparedRequest(text, ids=ids, first=0, stop=len(ids))
        values: dict[int, float] = {}

        def on_scores(queries, scores, values=values) -> None:
            for index, (_, _, _, requesters) in enumerate(queries):
                values.update((slot, scores.logprobs[index]) for _, slot in requesters)

        score_causal(
            loaded, {text: build_path(request, {})}, strategy="plain", budget=512, full_model=False,
            extras=frozenset(), on_scores=on_scores, journal=MemoryJournal(),
        )  # fmt: skip
        answers[text] = [values[slot] for slot in sorted(values)]
    return answers
