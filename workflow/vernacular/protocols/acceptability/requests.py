"""acceptability (CoLA): the surprisal of whole sentences, acceptable and not."""

from vernacular.protocols.request_rows import Setting, scored, unasked

FEW_SHOT = False


def requests(item: dict, setting: Setting) -> list[dict]:
    """Role "sentence": the span is all of it."""
    if not item["context"].strip():
        return [unasked(item, "an empty sentence")]
    return [scored(item, "sentence", "", item["context"], extras=pll(setting))]


def pll(setting: Setting, default: str = "original") -> list[str]:
    """How a masked model takes its pseudo-log-likelihood; a causal model does not read it."""
    return [f"pll:{setting.options.get('pll', default)}"]
