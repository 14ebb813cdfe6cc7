"""Tokens that state the languages of a text to an encoder-decoder (mBART, M2M-100, NLLB, SeamlessM4T).

The tokenizer puts one into the prompt; the decoder reads the other one after its first token, or in place of it (the
first mBART). Codes (glg_Latn, gl_ES, gl) are found by the tables of langcodes; `language_codes` of a model adds others.
"""

import contextlib
import copy
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from vernacular.checkpoints.files import read_json
from vernacular.core.errors import ModelError, suggest
from vernacular.core.languages import base_language, iso_codes
from vernacular.core.metadata import RequestsMetadata
from vernacular.core.model_record import ModelRecord
from vernacular.inference.model.tokenization import TextModel
from vernacular.inference.model.tokenizers import load_tokenizer

_CODE = re.compile(r"(?P<mark>__)?(?P<code>[a-z]{2,3}(?(mark)|_[A-Z][A-Za-z]{1,3}))(?(mark)__)")
_CLASSES = ("M2M100Tokenizer", "MBart50Tokenizer", "MBartTokenizer", "NllbTokenizer", "SeamlessM4TTokenizer")
_NEAREST = 5  # CLDR's distance of a region, or a script, from another one; of languages, it is larger


def codes_of(tokenizer) -> dict[str, str]:
    """Return the tokens of a tokenizer's languages by their codes, sorted; {} if it has none."""
    if hasattr(tokenizer, "lang_code_to_token"):  # M2M-100, whose vocabulary is without them
        return dict(sorted(tokenizer.lang_code_to_token.items()))
    vocabulary = sorted(tokenizer.get_vocab()) if hasattr(tokenizer, "src_lang") else ()
    return {match["code"]: token for token in vocabulary if (match := _CODE.fullmatch(token))}


def code_of(codes, language: str, own: dict[str, str] | None = None) -> str | None:
    """Return the code of a language, in the script of its tag; None if there is none. `own`: codes by tag.

    Of a macrolanguage (ISO 639-3) that is none of the codes, it is that of its only member.

    >>> codes = ["srp_Cyrl", "glg_Latn", "zho_Hans", "zho_Hant", "ekk_Latn", "pbt_Arab", "quy_Latn"]
    >>> [code_of(codes, tag) for tag in ("gl", "sr", "sr-Latn", "zh-TW", "et", "ast", "ps", "qu")]
    ['glg_Latn', 'srp_Cyrl', None, 'zho_Hant', 'ekk_Latn', None, 'pbt_Arab', 'quy_Latn']
    >>> code_of(["gl_ES", "zh_CN"], "zh"), code_of(["sr", "hr"], "sr-Latn"), code_of(["es"], "ast", {"ast": "es"})
    ('zh_CN', 'sr', 'es')
    """
    from langcodes import Language, tag_distance

    if language in (own or {}) or not Language.get(language).is_valid():
        return (own or {}).get(language)
    script, distances = Language.get(language).maximize().script, {None: _NEAREST + 1}
    for code in codes:
        tag = code.replace("_", "-").removesuffix("-XX")
        if "_" not in code or Language.get(tag).maximize().script == script:
            distances[code] = tag_distance(language, tag)
    nearest = min(distances, key=distances.get)
    if distances[nearest] <= _NEAREST:
        return nearest
    of_language = iso_codes(language)[base_language(language)]
    members = [code for code in distances if code and code.partition("_")[0] in of_language]
    return members[0] if len(members) == 1 else None


def missing_language(record: ModelRecord, metadata: RequestsMetadata) -> str | None:
    """Return why a model has no token for a language of an evaluation, if its tokenizer's class has any; else None."""
    codes = _saved_codes(record.tokenizer_directory or "") if record.kind == "seq2seq" else None
    if codes == ():
        return f"the languages of {record.name} are unknown: its tokenizer.json is not read by its class."
    for language in filter(None, dict.fromkeys(metadata.languages) if codes else ()):
        if (code := code_of(codes, language, record.language_codes)) not in codes:
            expected = f'language_codes: expected a code of its tokenizer, got "{code}".{suggest(code or "", codes)}'
            reason = expected if code else "language_codes may name one."
            return f"the tokenizer of {record.name} has no token for the language {language}. {reason}"
    return None


@lru_cache(maxsize=64)
def _saved_codes(directory: str) -> tuple[str, ...] | None:
    """Return the codes of a tokenizer whose class has languages; () if another class reads it; None of others."""
    path = Path(directory, "tokenizer_config.json")
    if path.is_file() and str(read_json(directory, path).get("tokenizer_class")).removesuffix("Fast") in _CLASSES:
        with contextlib.suppress(ModelError):  # the job states why
            return tuple(codes_of(load_tokenizer(ModelRecord(name=directory, directory=directory), directory)))
    return None


def in_evaluation(loaded: TextModel, metadata: RequestsMetadata | None) -> TextModel:
    """Return a model that tokenizes texts in the languages of an evaluation, and by lm-eval's rules if it is its.

    Where none is known, or the tokenizer has no token for it, the language is that of the checkpoint's files.
    """
    if metadata is None or loaded.kind != "seq2seq":
        return loaded
    loaded, codes = replace(loaded, as_lm_eval=metadata.protocol.startswith("lm_eval")), codes_of(loaded.tokenizer)
    source, target = (
        code_of(codes, language or "und", loaded.record.language_codes) for language in metadata.languages
    )
    if source in codes:
        loaded = replace(loaded, tokenizer=copy.deepcopy(loaded.tokenizer))  # others may be tokenized at the same time
        loaded.tokenizer.src_lang = source
    if target in codes:
        is_first = type(loaded.tokenizer).__name__ == "MBartTokenizer"  # the decoder's text begins with it alone
        token = loaded.tokenizer.convert_tokens_to_ids(codes[target])
        loaded = replace(loaded, start_ids=(token,) if is_first else (loaded.start_ids[0], token))
    return loaded
