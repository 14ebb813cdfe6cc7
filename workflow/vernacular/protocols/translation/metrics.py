"""translation: chrF2++, BLEU and spBLEU of sacrebleu over all items, from statistics per item.

The score of a corpus is no mean of scores of sentences: sacrebleu (Post 2018) sums n-gram counts over the sentences
first. These counts are the values of an item (`chrf2pp#0` …, `bleu#0` …), so that bootstrap, categories and paired
differences compute the score of the drawn items from their sums. The value `chrf2pp` of an item is its own score, by
which items are sorted.

chrF2 (character n-grams alone), chrF2++ (also words and pairs of words, Popović 2017) and chrF3++ (recall counts more)
are three scores on one scale, which cannot be compared. The headline is chrF2++, as in the NLLB paper. An empty
translation is one without any match; a failed generation is excluded from all metrics.
"""

import functools
import importlib.util
import unicodedata
from collections.abc import Callable

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS

from vernacular.core.errors import DataError
from vernacular.core.languages import UNSPACED, base_language, script_of, usual_script
from vernacular.core.languages import in_one_script as one_script
from vernacular.metrics.metric import COUNT, Metric, count_names, in_one_script
from vernacular.metrics.similarity.outputs import ParsedOutput
from vernacular.metrics.spans import result_row
from vernacular.types import Item, Request, Result, target_language

SPBLEU = "spbleu"
# SentencePiece model of FLORES-200, which is also that of NLLB-200
SPM_URL, SPM_SHA256 = SPM_MODELS["flores200"]["url"], "14bb8dfb35c0ffdea7bc01e56cea38b9e3d5efcdcb9c251d6b40538e1aab555a"
_CHRF, _BLEU = CHRF(word_order=2), BLEU()
_UNSPACED_BLEU = {name: BLEU(tokenize=name) for name in ("zh", "char")}  # of texts without spaces between words
_PIECES = BLEU(tokenize="none", force=True)  # of texts that are already split
_N_CHRF, _N_BLEU = 3 * _CHRF.order, 2 + 2 * _BLEU.max_ngram_order  # numbers per item


def _corpus(metric: SacreMetric) -> Callable[..., np.ndarray]:
    """Return a function from the statistics of items, arrays (…, n), to the score of their sums, (…)."""

    def score(*statistics: np.ndarray) -> np.ndarray:
        sums = np.stack([values.sum(-1) for values in statistics], axis=-1)
        scores = [metric._compute_score_from_stats(row).score for row in sums.reshape(-1, len(statistics)).tolist()]
        return np.array(scores).reshape(sums.shape[:-1])

    return score


def _signature(metric: SacreMetric, **tokenizer: str) -> str:
    metric.corpus_score(["a"], [["a"]])  # a signature states the number of references
    signature = metric.get_signature()
    signature.info |= tokenizer
    return signature.format()


METRICS = [
    Metric("chrf2pp", "score", True, "similarity", headline=True, corpus=_corpus(_CHRF),
           needs=count_names("chrf2pp", _N_CHRF), tool_signature=_signature(_CHRF),
           about="n-grams of characters and words shared with the references, over all items, 0 to 100 (sacrebleu)"),
    Metric("bleu", "score", True, "similarity", corpus=_corpus(_BLEU),
           needs=count_names("bleu", _N_BLEU), tool_signature=_signature(_BLEU),
           about="BLEU of all items, 0 to 100 (sacrebleu, tokenizer 13a; without spaces between words, zh or char)"),
    Metric(SPBLEU, "score", True, "similarity", corpus=_corpus(_PIECES),
           needs=count_names(SPBLEU, _N_BLEU), tool_signature=_signature(_PIECES, tok="flores200"),
           about="BLEU of the pieces of FLORES-200's SentencePiece model (spBLEU, sacrebleu's tokenizer flores200)"),
    Metric("copied_source", "share", False, "similarity", proportion=True,
           about="outputs that equal the source text, except for case and spaces"),
    Metric("empty", "share", False, "similarity", proportion=True, about="outputs without text"),
    Metric("wrong_script", "share", False, "similarity", proportion=True,
           about="outputs with most letters in another script than the reference, of those with letters"),
]  # fmt: skip
SCRIPT_METRICS = in_one_script(METRICS[:2])


def result_of(item: Item, request: Request, output: ParsedOutput) -> Result:
    """Return the row of an item."""
    values, flags = {}, [output.flag]
    if output.text is not None:
        text, reference = line(output.text), line(item["target"])
        values = statistics(text, reference, target_language(item))
        script, expected = script_of([text]), script_of([reference])
        folded, source = (
            " ".join(unicodedata.normalize("NFC", each).casefold().split()) for each in (text, item["context"])
        )
        symptoms = {"copied_source": bool(text) and folded == source, "empty": not text}
        if script and expected:
            symptoms["wrong_script"] = script != expected
        values |= {name: float(found) for name, found in symptoms.items()}
        flags += ["copied source"] if symptoms["copied_source"] else []
        flags += [f"wrong script: {script}"] if symptoms.get("wrong_script") else []
    shown = item | {"choices": [item["target"] or ""], "gold": [0]}  # the reference, beside the output in the report
    return result_row(shown, flags, request["text"], values | output.values, prediction=output.text)


def script_values(item: Item, text: str, similarities: dict, language: str) -> dict[str, float]:
    """Return the counts of an item in one script, and its own chrF2++."""
    counts = statistics(*(one_script(line(each), language) for each in (text, item["target"])))
    named = ((name.partition(COUNT), value) for name, value in counts.items() if not name.startswith(SPBLEU))
    return {f"{name}_script{mark}{number}": value for (name, mark, number), value in named}


def line(text: str) -> str:
    """Return a text as it is compared and as it stands in a file with one text per line.

    >>> line(" Chove\\namodo. ")
    'Chove amodo.'
    """
    return " ".join(text.split())


def statistics(text: str, reference: str, language: str | None = None) -> dict[str, float]:
    """Return the counts of an item by name, those of spBLEU if its tokenizer is available, and its own chrF2++.

    `language`: of the reference, which decides the tokenizer of BLEU; None: its letters do.
    """
    bleu = _bleu(usual_script(language) if language else script_of([reference]), language)
    counts = _counts(_CHRF, text, reference)
    values = {"chrf2pp": _CHRF._compute_score_from_stats(counts).score}
    values |= zip(count_names("chrf2pp", _N_CHRF), counts, strict=True)
    values |= zip(count_names("bleu", _N_BLEU), _counts(bleu, text, reference), strict=True)
    encode, *_ = _pieces()
    if encode:
        values |= zip(count_names(SPBLEU, _N_BLEU), _counts(_PIECES, encode(text), encode(reference)), strict=True)
    return {name: float(value) for name, value in values.items()}


def _bleu(script: str | None, language: str | None) -> BLEU:
    """Return BLEU with sacrebleu's tokenizer of Chinese, of the other scripts without spaces, or 13a.

    A tokenizer of Japanese needs a dictionary that is not installed: its characters are compared, too.
    """
    if script not in UNSPACED:
        return _BLEU
    return _UNSPACED_BLEU["zh" if script == "Hani" and base_language(language or "zh") != "ja" else "char"]


def signatures(language: str) -> dict[str, str]:
    """Return the signature of BLEU in a language without spaces between words, by its name; {} for others."""
    metric = _bleu(usual_script(language), language)
    return {} if metric is _BLEU else {"bleu": _signature(metric)}


def _counts(metric: SacreMetric, text: str, reference: str) -> list[int]:
    return metric._extract_corpus_statistics([text], [[reference]])[0]


def missing() -> tuple[dict[str, str], dict[str, str]]:
    """Return why metrics are unavailable, by name: (a package is not installed, a file cannot be fetched)."""
    _, reason, is_installed = _pieces()
    reasons = {SPBLEU: reason} if reason else {}
    return ({}, reasons) if is_installed else (reasons, {})


@functools.cache
def _pieces() -> tuple[Callable[[str], str] | None, str | None, bool]:
    """Return (function from a text to its pieces, joined by spaces; or why there is none; whether it is installed)."""
    if importlib.util.find_spec("sentencepiece") is None:
        return None, "sentencepiece is not installed (extra: translation)", False
    import sentencepiece  # where it is used: it is optional

    from vernacular.core.hub_snapshot import fetch

    try:
        path, _ = fetch(SPM_URL, SPM_SHA256, stage="metrics", pin="this version of Vernacular")
    except DataError as error:
        return None, " ".join(str(error).split()), True
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return (lambda text: " ".join(processor.EncodeAsPieces(text))), None, True
