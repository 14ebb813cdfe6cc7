"""Comparison of a loaded tokenizer with the files of its source, of models and encoders alike.

Every component of `tokenizer.json` is in the loaded tokenizer, is in a list of what has no effect, or raises an error
or a note. What a GGUF file contains is compared in `gguf_conversion`.

transformers 5 builds the tokenizers of most classes from vocabulary and merges, with the class's own normalizer and
pre-tokenizer. `tokenizer.json` decides: transformers writes it from the pipeline in memory, so that it differs from the
class's only if the model was trained with another one, by an earlier version or another tool. It is incorrect if an
early conversion of a SentencePiece model was; with `tokenizer_pipeline: class`, the class decides.
"""

import copy
import json
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import transformers
from tokenizers import Tokenizer, normalizers
from transformers import PreTrainedTokenizerFast

from vernacular.checkpoints.files import read_json
from vernacular.core.errors import ModelError, first_of, format_count

CLASS = "class"  # value of tokenizer_pipeline: the class named in tokenizer_config.json decides
_PARTS = ("normalizer", "pre_tokenizer", "model", "post_processor", "decoder", "added_tokens")
# Settings of tokenizer_config.json that repeat one of tokenizer.json, by the name that they have there.
_REPEATED = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_ATTRIBUTES = ("padding_side", "truncation_side", "model_max_length", "model_input_names")
# Only for the note: which pipeline is used does not depend on them. Scripts, marks, composed and decomposed letters,
# ligatures, capitals, digits, runs of spaces, punctuation and line ends.
_TEXTS = (
    "O gato dorme no tellado.", "L'home va dir-m'ho: 'no vull anar-hi'.", "cafe\u0301 ﬁn NAÏVE ½ Ǆ",
    "  a   b\t c\r\n\n d ", "1234567 12,5 % -3", "(x_1)!? «…» — @a#b <c>", "Ђаци уче: Ёж",
    "Καλημέρα ά", "قِطَّةٌ ٱلْبَيْت ١٢٣", "שָׁלוֹם עולם", "नमस्ते क़लम", "বাংলা ভাষা", "தமிழ் மொழி",
    "తెలుగు", "ಕನ್ನಡ", "മലയാളം", "ગુજરાતી", "ਪੰਜਾਬੀ", "සිංහල", "ไทย ภาษา", "ភាសាខ្មែរ", "မြန်မာ",
    "ລາວ", "བོད་སྐད།", "ქართული", "Հայերեն", "አማርኛ ነው።", "ᏣᎳᎩ", "ᐃᓄᒃᑎᑐᑦ", "ⵜⴰⵎⴰⵣⵉⵖⵜ", "한국어 가",
    "น้ำ ຄຳ ໝາ ﻣﺮﺣﺒﺎ ５ ㎏", "日本語のテキスト", "中文，测试", "😀👍🏽",
)  # fmt: skip


def tokenizer_of_file(
    tokenizer, directory: str | Path, name: str, pipeline: str | None = None
) -> tuple[PreTrainedTokenizerFast, list[str]]:
    """Return (the tokenizer of `directory` with the pipeline of its tokenizer.json, notes on what differs).

    `tokenizer`: as its class loads it, which is returned if it is equal, or if `pipeline` is CLASS. Raises ModelError
    if neither has the pipeline of the file.
    """
    file, class_name = Path(directory, "tokenizer.json"), type(tokenizer).__name__
    if not file.is_file():
        return _tokenizer_of_sentencepiece(tokenizer, directory, name, pipeline)
    if not getattr(tokenizer, "is_fast", False):
        return tokenizer, [f"tokenizer.json is not read: {class_name} has its own pipeline"]
    path = Path(directory, "tokenizer_config.json")
    settings = read_json(name, path) if path.is_file() else {}
    stored = Tokenizer.from_file(str(file))
    stored.no_truncation()
    stored.no_padding()
    notes = _contradictions(stored, settings) + _missing_tokens(stored, settings)
    if getattr(stored.model, "dropout", None):
        notes.append(f"dropout of tokenizer.json ({stored.model.dropout}), which splits words at random, is not used")
        for each in (stored, tokenizer.backend_tokenizer):
            _without_dropout(each)
    if not (parts := _differing(tokenizer.backend_tokenizer, stored, settings)):
        return tokenizer, notes + _added_tokens(tokenizer, stored, settings)
    is_kept = pipeline == CLASS or not type(tokenizer).__module__.startswith("transformers.")  # own code, if allowed
    own = f"the {', '.join(parts)} of {class_name}, which tokenizer_config.json or config.json names"
    if n_texts := _differing_texts(tokenizer, stored):
        seen = f"({format_count(n_texts, 'test text')} with other tokens)"
        notes.append(
            f"{own}, instead of tokenizer.json {seen}" if is_kept else f"tokenizer.json instead of {own} {seen}"
        )
    if is_kept:
        return tokenizer, notes
    # the generic class, with the special tokens and limits of the other one
    tokens = {key: token for key, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    tokens = {key: token for key, token in tokens.items() if stored.token_to_id(token) is not None}
    loaded = PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True, **tokens)
    _without_dropout(loaded.backend_tokenizer)
    for attribute in _ATTRIBUTES:
        setattr(loaded, attribute, getattr(tokenizer, attribute))
    left = set(_differing(loaded.backend_tokenizer, stored, settings))
    if left - {"post_processor", "added_tokens"}:
        raise ModelError(f"model {name}: {file}: transformers does not load its {', '.join(sorted(left))} as stored.")
    if left and (n_texts := _differing_texts(loaded, stored)):
        notes.append(f"tokens of tokenizer_config.json replace those of tokenizer.json in {n_texts} test texts")
    return loaded, notes + _added_tokens(loaded, stored, settings)


def _tokenizer_of_sentencepiece(tokenizer, directory: str | Path, name: str, pipeline: str | None):
    """Return the same for a SentencePiece model without tokenizer.json.

    In `tokenizer.model`, a class ignores the file's normalizer and whether it puts a space before a text; the generic
    one reads them. Where a class gives its tokens other IDs (fairseq's), they cannot be compared. A stated
    `add_prefix_space` is one of the class. Files of other names are those of classes with steps of their own, such as
    lower case; what such a class ignores in the file follows them. Raises ModelError if most tokens are still others
    than those of sentencepiece, or without a vocabulary.
    """
    path = Path(directory, "tokenizer_config.json")
    is_stated = isinstance((read_json(name, path) if path.is_file() else {}).get("add_prefix_space"), bool)
    own_code = not type(tokenizer).__module__.startswith("transformers.")
    if own_code or not getattr(tokenizer, "is_fast", False):
        return tokenizer, []
    class_name, file = type(tokenizer).__name__, _sentencepiece_file(tokenizer, Path(directory))
    vocabulary, own_name = tokenizer.get_vocab(), tokenizer.vocab_files_names.get("vocab_file")
    if file is None:
        if len(vocabulary) - len(tokenizer.added_tokens_decoder) < 2:  # "▁" at most, with which classes start
            expected = " or ".join(filter(None, ["tokenizer.json", own_name]))
            raise ModelError(f"model {name}: the vocabulary of {class_name} not found in {directory}: {expected}.")
        return tokenizer, []
    tokens = {key: token for key, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    with TemporaryDirectory() as temporary:  # the generic class reads one name only
        Path(temporary, "tokenizer.model").symlink_to(file.resolve())
        for entry in Path(directory).iterdir():
            if entry.name not in ("tokenizer.model", file.name):
                Path(temporary, entry.name).symlink_to(entry.resolve())
        try:
            loaded = PreTrainedTokenizerFast.from_pretrained(temporary, local_files_only=True, **tokens)
        except Exception:  # noqa: BLE001 (of any class: the file is one of tiktoken)
            return tokenizer, []
    loaded.name_or_path = tokenizer.name_or_path
    pieces = loaded.get_vocab()
    if len(pieces.keys() - vocabulary) > len(pieces) / 2:
        raise _unread(name, file, class_name, own_name, "does not read this vocabulary")
    what, normalizer = "pipeline", None
    if file.name != "tokenizer.model" or any(vocabulary.get(token) != index for token, index in pieces.items()):
        normalizer = tokenizer.backend_tokenizer.normalizer  # the steps of the class
        what, loaded = _with_parts_of(loaded, tokenizer)
    elif is_stated:
        pipeline = CLASS
    if not (is_stated or pipeline == CLASS) and _differing_pieces(loaded, normalizer, file) > len(_TEXTS) / 2:
        raise _unread(name, file, class_name, own_name, "reads it otherwise than sentencepiece")
    options = {"add_special_tokens": False}
    if not (n_texts := sum(tokenizer.encode(t, **options) != loaded.encode(t, **options) for t in _TEXTS)):
        return tokenizer, []
    names = [file.name, class_name]
    if pipeline == CLASS:
        names, loaded = names[::-1], tokenizer
    else:
        loaded.backend_tokenizer.post_processor = tokenizer.backend_tokenizer.post_processor
        for attribute in _ATTRIBUTES:
            setattr(loaded, attribute, getattr(tokenizer, attribute))
    seen = f"({format_count(n_texts, 'test text')} with other tokens)"
    return loaded, [f"the {what} of {names[0]} instead of that of {names[1]} {seen}"]


def _unread(name: str, file: Path, class_name: str, own_name: str | None, problem: str) -> ModelError:
    advice = "Convert the tokenizer to tokenizer.json, as earlier versions of transformers save it."
    if own_name and own_name != file.name and own_name.endswith(".model"):
        advice = f"Rename the file to {own_name}, the name that it expects."
    return ModelError(
        f"model {name}: {file}: {class_name} of transformers {transformers.__version__} {problem}. {advice}"
    )


def _differing_pieces(tokenizer, normalizer, file: Path) -> int:
    """Return the number of test texts with other tokens than sentencepiece gives, after the steps of a class."""
    try:
        from sentencepiece import SentencePieceProcessor  # optional

        own, n_texts = SentencePieceProcessor(model_file=str(file)), 0
    except (ImportError, RuntimeError):  # the file is one of tiktoken
        return 0
    unknown = own.id_to_piece(own.unk_id())
    for text in _TEXTS:
        pieces = own.id_to_piece(own.encode(normalizer.normalize_str(text) if normalizer else text))
        tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))
        n_texts += pieces != [unknown if token == tokenizer.unk_token else token for token in tokens]
    return n_texts


def _sentencepiece_file(tokenizer, directory: Path) -> Path | None:
    """Return the file that a class should have read: of its own name, of the usual one, or any."""
    names = [tokenizer.vocab_files_names.get("vocab_file"), "tokenizer.model"]
    names = [*filter(None, names), *(path.name for path in sorted(directory.glob("*.model")))]
    found = next((directory / each for each in names if Path(directory, each).is_file()), None)
    return found if found and found.suffix == ".model" else None


def _with_parts_of(loaded, tokenizer):
    """Return (the parts replaced, a copy of `tokenizer` with what its class ignores in the file of `loaded`).

    The map of letters, unless it has one; the token or bytes of unknown characters; BPE, which many read as Unigram.
    """
    own, stored = (json.loads(each.backend_tokenizer.to_str()) for each in (tokenizer, loaded))
    lacks_letters = '"Precompiled"' not in json.dumps(own["normalizer"])
    lacks_letters &= '"Precompiled"' in json.dumps(stored["normalizer"])
    vocabulary, model_of_file = tokenizer.get_vocab(), stored["model"]
    model = own["model"] | {"byte_fallback": model_of_file["byte_fallback"]}
    if (model["type"], model_of_file["type"]) == ("Unigram", "BPE"):
        model = model_of_file | {"vocab": vocabulary, "unk_token": tokenizer.unk_token}
    elif model["type"] == model_of_file["type"] == "Unigram":
        unknown, _ = model_of_file["vocab"][model_of_file["unk_id"]]
        model["unk_id"] = vocabulary.get(unknown, model["unk_id"])
    parts = {"normalizer": lacks_letters, "model": model != own["model"]}
    found = copy.deepcopy(tokenizer) if any(parts.values()) else tokenizer
    backend, backend_of_file = found.backend_tokenizer, loaded.backend_tokenizer
    if parts["normalizer"]:
        steps = [backend.normalizer] if backend.normalizer else []
        backend.normalizer = normalizers.Sequence([*steps, backend_of_file.normalizer[0]])  # its first step: letters
    if parts["model"]:
        parts_of_file = stored | {"model": model, "added_tokens": [], "post_processor": None}
        backend.model = Tokenizer.from_str(json.dumps(parts_of_file)).model
        backend.decoder = backend_of_file.decoder
    return " and ".join(part for part, is_replaced in parts.items() if is_replaced), found


def tokenizer_without_class(
    directory: str | Path, name: str, error: Exception
) -> tuple[PreTrainedTokenizerFast, list[str]]:
    """Return (the tokenizer of tokenizer.json, notes) where its class raised `error`: it reads other vocabularies.

    Raises `error` if there is no such file, its class is unknown, or the file is invalid, too.
    """
    settings = Path(directory, "tokenizer_config.json")
    class_name = (read_json(name, settings) if settings.is_file() else {}).get("tokenizer_class")
    is_known = class_name is None or hasattr(transformers, str(class_name))  # None: of the model's type
    if not Path(directory, "tokenizer.json").is_file() or not is_known:
        raise error
    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True)
    except Exception:  # noqa: BLE001 (of tokenizers)
        raise error from None
    _without_dropout(tokenizer.backend_tokenizer)
    own = f"{class_name}, which tokenizer_config.json names" if class_name else "the class of the model's type"
    return tokenizer, [f"tokenizer.json instead of {own}: it cannot load it"]


def _differing(loaded: Tokenizer, stored: Tokenizer, settings: dict) -> list[str]:
    """Return the parts that differ, without what tokenizer_config.json adds to them explicitly."""
    if (own := loaded.to_str()) == (expected := stored.to_str()):
        return []
    own, expected = json.loads(own), json.loads(expected)
    for model in (own["model"], expected["model"]):
        if model["type"] == "Unigram":  # the library reads the last digit of a score otherwise than Python
            model["vocab"] = [[piece, float(f"{score:.12g}")] for piece, score in model["vocab"]]
    parts = {part for part in _PARTS if own[part] != expected[part]}
    n_special = [each.num_special_tokens_to_add(False) for each in (loaded, stored)]
    if n_special == [0, 0]:
        parts -= {"post_processor"}
    stated = json.dumps(settings, ensure_ascii=False)
    extra = [token for token in own["added_tokens"] if token not in expected["added_tokens"]]
    is_kept = all(token in own["added_tokens"] for token in expected["added_tokens"])
    if is_kept and all(json.dumps(token["content"], ensure_ascii=False) in stated for token in extra):
        parts -= {"added_tokens"}
    return [part for part in _PARTS if part in parts]


def _differing_texts(tokenizer, stored: Tokenizer) -> int:
    added = (f"a{token.content}b {token.content} c" for token in stored.get_added_tokens_decoder().values())

    def differs(text: str) -> bool:
        try:
            return tokenizer(text, verbose=False)["input_ids"] != stored.encode(text).ids
        except Exception:  # noqa: BLE001 (of tokenizers: the vocabulary of the file does not fit the class)
            return True

    return sum(map(differs, (*_TEXTS, *islice(added, 8))))


def _without_dropout(tokenizer: Tokenizer) -> None:
    if getattr(tokenizer.model, "dropout", None):
        tokenizer.model.dropout = None


def _missing_tokens(stored: Tokenizer, settings: dict) -> list[str]:
    """Return notes on special tokens that the vocabulary lacks, so that the model has never seen or written them."""
    tokens = {key: _text_of(settings.get(key)) for key in ("bos_token", "eos_token", "mask_token")}
    missing = {key: text for key, text in tokens.items() if isinstance(text, str) and stored.token_to_id(text) is None}
    return [f"the vocabulary lacks the {key} of tokenizer_config.json, {text}" for key, text in missing.items()]


def _added_tokens(tokenizer, stored: Tokenizer, settings: dict) -> list[str]:
    """Return a note on further tokens that a tokenizer reads in texts, and its tokenizer.json does not."""
    known = {token.content for token in stored.get_added_tokens_decoder().values()}
    known |= {token for token in tokenizer.special_tokens_map.values() if stored.token_to_id(str(token)) is not None}
    known |= {_text_of(settings.get(key)) for key in ("bos_token", "eos_token", "mask_token")}
    added = (token.content for token in tokenizer.backend_tokenizer.get_added_tokens_decoder().values())
    if found := [token for token in added if token not in known]:
        return [f"texts are read with added tokens that tokenizer.json does not have, {first_of(found)}"]
    return []


def _text_of(token: str | dict | None) -> str | None:
    return token.get("content") if isinstance(token, dict) else token


def _contradictions(stored: Tokenizer, settings: dict) -> list[str]:
    """Return notes on settings of tokenizer_config.json that differ from those in tokenizer.json, which are used."""
    text = stored.normalizer.normalize_str("a") if stored.normalizer else "a"
    words = stored.pre_tokenizer.pre_tokenize_str(text) if stored.pre_tokenizer else [(text, None)]
    found = {"add_prefix_space": ("a space", words[0][0][:1] in " Ġ▁", "before")} if words else {}
    if tokens := stored.encode("a").tokens:
        for name, place, index in (("bos_token", "before", 0), ("eos_token", "after", -1)):
            token = _text_of(settings.get(name))
            found[f"add_{name}"] = (token, tokens[index] == token, place)
    notes = [
        f"tokenizer.json puts {token if used else f'no {token}'} {place} a text; {key}: {settings[key]} is not used"
        for key, (token, used, place) in found.items()
        if token and isinstance(settings.get(key), bool) and settings[key] != used
    ]
    pending = [json.loads(stored.to_str())[part] for part in ("normalizer", "pre_tokenizer")]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            pending += part.values()
            for key, key_there in _REPEATED.items():
                value, used = settings.get(key), part.get(key_there)
                if isinstance(value, bool) and isinstance(used, bool) and value != used:
                    kind = part["type"]
                    notes.append(f"{kind} of tokenizer.json has {key_there}: {used}; {key}: {value} is not used")
    return notes
