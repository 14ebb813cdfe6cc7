"""Pseudo-log-likelihoods against one masked copy at a time through transformers."""

import pytest
import torch
from support import tiny
from vernacular.core.errors import ModelError
from vernacular.inference.scoring.score import score

TEXTS = ["O gato dorme no tellado.", "A choiva cae 🙂 amodo sobre a vila; ninguén sae da casa.", "rúa", "gato"]


def requests(variant):
    texts = [(text, 0, len(text)) for text in TEXTS] + [(TEXTS[0], 2, 6), (TEXTS[0], 2, 6)]
    return tiny.score_requests(texts, extras=[f"pll:{variant}"])


@torch.inference_mode()
def one_by_one(loaded, text, start, end, variant):
    found = loaded.tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    ids, words = found["input_ids"], found.word_ids()
    logprobs = []
    for i, (a, b) in enumerate(found["offset_mapping"]):
        if found["special_tokens_mask"][i] or a >= end or b <= start:
            continue
        masked = list(ids)
        masked[i] = loaded.tokenizer.mask_token_id
        for j in range(i + 1, len(ids)):
            if variant == "within_word_l2r" and words[j] == words[i]:
                masked[j] = loaded.tokenizer.mask_token_id
        logits = loaded.model(input_ids=torch.tensor([masked])).logits[0, i].double().log_softmax(-1)
        logprobs.append(logits[ids[i]].item())
    return logprobs


@pytest.mark.parametrize("variant", ["original", "within_word_l2r"])
@pytest.mark.parametrize("arch", ["bert", "roberta", "deberta"])
@pytest.mark.parametrize("budget", [16, 512])
def test_pseudo_log_likelihood_is_that_of_one_copy_at_a_time(arch, variant, budget):
    loaded = tiny.loaded(arch, max_batch_tokens=budget)
    asked = requests(variant)
    table, metadata = score(loaded, asked)
    for request, row in zip(asked.to_pylist(), table.to_pylist(), strict=True):
        expected = one_by_one(loaded, request["text"], request["span_start"], request["span_end"], variant)
        assert row["logprobs"] == pytest.approx(expected, abs=1e-4)
        assert sum(row["logprobs"]) == pytest.approx(sum(expected), abs=1e-4)
    assert metadata["engine"]["pll"] == [variant]


def test_within_word_masks_only_pieces_of_the_same_word():
    loaded = tiny.loaded("bert")
    tables = [score(loaded, requests(variant))[0].to_pylist() for variant in ("original", "within_word_l2r")]
    pieces = [token.startswith("##") for token in tables[0][1]["tokens"]]
    assert any(pieces)
    followed = [*pieces[1:], False]  # a piece follows in the same word
    for original, l2r, more in zip(tables[0][1]["logprobs"], tables[1][1]["logprobs"], followed, strict=True):
        assert (original == pytest.approx(l2r, abs=1e-5)) != more


def test_candidates_in_one_masked_place_share_the_copy():
    loaded = tiny.loaded("bert")
    texts = ["the cat sleeps on the roof", "the dog sleeps on the roof"]
    table, metadata = score(loaded, tiny.score_requests([(text, 4, 7) for text in texts]))
    tokens = [row["tokens"] for row in table.to_pylist()]
    assert [len(each) for each in tokens] == [1, 1], "the test wants words of one token"
    assert metadata["counters"]["tokens_trie"] == len(loaded.tokenizer(texts[0])["input_ids"])


def test_long_text_is_cut_around_the_span_and_keeps_its_specials():
    loaded = tiny.loaded("bert", max_length=12)
    text = "the dog sleeps on the roof and the cat sleeps on the table and the bird sleeps"
    start = text.index("cat")
    row = score(loaded, tiny.score_requests([(text, start, start + 3)]))[0].to_pylist()[0]
    assert row["tokens"] == ["cat"]
    assert row["flags"].startswith("truncated: ")
    assert row["logprobs"][0] < 0


def test_tokenizer_without_a_mask_token_is_refused():
    loaded = tiny.loaded("roberta", tokens="bytes")
    with pytest.raises(ModelError, match="no mask token"):
        score(loaded, tiny.score_requests([("gato", 0, 4)]))
