"""Encoder-decoder models: what the decoder reads before a text, and the token in place of a word to fill in.

The prompt goes to the encoder, with the special tokens of its tokenizer; the decoder continues from
`decoder_start_token_id` and the `forced_bos_token_id`, as in `generate` of transformers.
"""

import copy

import torch

from vernacular.checkpoints.files import fills_in
from vernacular.core.errors import ModelError
from vernacular.core.model_record import ModelRecord

_SENTINELS = ("<extra_id_0>", "▁<extra_id_0>")  # the second one: of mT5
_BYTE_SENTINEL = 258  # of ByT5: a byte that no UTF-8 text has (Xue et al. 2022, "ByT5"); its <extra_id_0> is unused


def decoder_fields(model, tokenizer, record: ModelRecord) -> dict:
    """Return the fields of TextModel that describe a decoder; {} of other kinds. Raises ModelError without a start."""
    if record.kind != "seq2seq":
        return {}
    config = (getattr(model.config, "decoder", None) or model.config).get_text_config(decoder=True)

    def stated(*names: str) -> int | None:
        configs = model.generation_config, model.config, config
        values = (getattr(each, name, None) for name in names for each in configs)
        return next((value for value in values if isinstance(value, int)), None)

    start, forced = stated("decoder_start_token_id", "bos_token_id"), stated("forced_bos_token_id")
    if start is None:
        problem = "expected decoder_start_token_id in its generation_config.json or config.json, got none"
        raise ModelError(f"model {record.name}: {problem}, so that its decoder has no first token.")
    vocabulary = tokenizer.get_vocab() if fills_in(type(model).__name__) else {}
    is_bytes = vocabulary and type(tokenizer).__name__ == "ByT5Tokenizer"
    return {
        "start_ids": (start,) if forced is None else (start, forced),
        "target_length": stated("max_decoder_position_embeddings", "max_position_embeddings"),
        "sentinel_id": _BYTE_SENTINEL if is_bytes else next(filter(None, map(vocabulary.get, _SENTINELS)), None),
        "forces_end": stated("forced_eos_token_id") is not None,
    }


def padded(loaded, texts: list) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (IDs, attention mask) of texts on the device of a LoadedModel, [rows, longest]."""
    longest = max(map(len, texts))
    ids = torch.full((len(texts), longest), loaded.tokenizer.pad_token_id or 0)
    mask = torch.zeros(len(texts), longest, dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text)
        mask[row, : len(text)] = 1
    return ids.to(loaded.device), mask.to(loaded.device)


def encode_prompts(loaded, texts: list) -> dict:
    """Run the encoder; return the arguments with which the model's forward decodes after these prompts."""
    ids, mask = padded(loaded, texts)
    output = loaded.body(input_ids=ids, attention_mask=mask, return_dict=True)
    # without the IDs, the decoder of FSMT reads later tokens, too
    return {"encoder_outputs": output, "attention_mask": mask, "input_ids": ids}


def of_rows(inputs: dict, rows: torch.Tensor) -> dict:
    """Return the same arguments for some rows."""
    encoded = copy.copy(inputs["encoder_outputs"])
    encoded["last_hidden_state"] = encoded.last_hidden_state[rows]
    return {"encoder_outputs": encoded, **{name: inputs[name][rows] for name in ("attention_mask", "input_ids")}}
