"""Pseudo-log-likelihoods compared with transformers on single masked copies."""

from dataclasses import replace

import pytest
import torch
from oracles import surprisal
from support import tiny
from support.engines import score
from tokenizers import Tokenizer, models, normalizers
from transformers import PreTrainedTokenizerFast
from vernacular.core.errors import ModelError

TEXTS = ["O gato dorme no tellado.", "A choiva cae 🙂 amodo sobre a vila; ninguén sae da casa.", "rúa", "gato"]


def build_requests(variant):
    texts = [(text, 0, len(text)) for text in TEXTS] + [(TEXTS[0], 2, 6), (TEXTS[0], 2, 6)]
    return tiny.score_requests(texts, extras=[f"pll:{variant}"])


@pytest.mark.parametrize("variant", ["original", "within_word_l2r"])
@pytest.mark.parametrize("arch", ["bert", "roberta", "deberta"])
@pytest.mark.parametrize("budget", [16, 512])
def test_pll_matches_single_copy_scores(arch, variant, budget):
    loaded = tiny.load_model(arch, max_batch_tokens=budget)
    request_table = build_requests(variant)
    table, metadata = score(loaded, request_table)
    for request, row in zip(request_table.to_pylist(), table.to_pylist(), strict=True):
        span = request["span_start"], request["span_end"]
        expected = surprisal.masked(loaded.model, loaded.tokenizer, request["text"], *span, variant=variant).logprobs
        assert row["logprobs"] == pytest.approx(expected, abs=1e-4)
        assert sum(row["logprobs"]) == pytest.approx(sum(expected), abs=1e-4)
    assert metadata["engine"]["pll"] == [variant]


def test_within_word_masks_only_subwords_of_same_word():
    loaded = tiny.load_model("bert")
    tables = [score(loaded, build_requests(variant))[0].to_pylist() for variant in ("original", "within_word_l2r")]
    is_subword = [token.startswith("##") for token in tables[0][1]["tokens"]]
    assert any(is_subword)
    next_is_subword = [*is_subword[1:], False]  # a subword token follows in the same word
    for original, l2r, shares_word in zip(
        tables[0][1]["logprobs"], tables[1][1]["logprobs"], next_is_subword, strict=True
    ):
        assert (original == pytest.approx(l2r, abs=1e-5)) != shares_word


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        (
            "O gato dorme no tellado",
            "gato",
            lambda text, at: text[:at].count(" "),
        ),  # a tokenizer without words: Gemma's
        ("ไทยแมวนอนบนหลังคา", "แมว", lambda text, at: text[:at].count(" ") if 3 <= at < 6 else f"other {at}"),
    ],
)
def test_words_of_tokenizers_that_do_not_split_texts(text, target, words):
    core = Tokenizer(models.Unigram([("<unk>", 0), *((c, -9) for c in sorted({*text, "▁"})), ("▁ga", -5)], unk_id=0))
    core.normalizer = normalizers.Replace(" ", "▁")
    core.add_special_tokens(["<mask>", "<pad>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, mask_token="<mask>", pad_token="<pad>")
    tiny_bert = tiny.load_model("bert")
    loaded = replace(tiny_bert, tokenizer=tokenizer)
    start = text.index(target)
    requests = tiny.score_requests([(text, start, start + len(target))], extras=["pll:within_word_l2r"])
    (row,) = score(loaded, requests)[0].to_pylist()
    encoding, expected = tokenizer(text).encodings[0], []
    ids, starts = encoding.ids, [low + (text[low] == " ") for low, _ in encoding.offsets]
    for i in (i for i, at in enumerate(starts) if start <= at < start + len(target)):
        same = [j >= i and words(text, starts[j]) == words(text, starts[i]) for j in range(len(ids))]
        copy = torch.tensor(
            [[tokenizer.mask_token_id if masked else token for token, masked in zip(ids, same, strict=True)]]
        )
        with torch.no_grad():
            expected.append(loaded.model(copy).logits[0, i].log_softmax(-1)[ids[i]].item())
    assert len(expected) > 1
    assert row["logprobs"] == pytest.approx(expected, abs=1e-4)


def test_candidates_at_same_position_share_masked_copy():
    loaded = tiny.load_model("bert")
    texts = ["the cat sleeps on the roof", "the dog sleeps on the roof"]
    table, metadata = score(loaded, tiny.score_requests([(text, 4, 7) for text in texts]))
    tokens = [row["tokens"] for row in table.to_pylist()]
    assert [len(span) for span in tokens] == [1, 1], "the test requires words of one token"
    assert metadata["counters"]["tokens_trie"] == len(loaded.tokenizer(texts[0])["input_ids"])


def test_long_text_is_truncated_around_span_with_special_tokens():
    loaded = tiny.load_model("bert", max_length=12)
    text = "the dog sleeps on the roof and the cat sleeps on the table and the bird sleeps"
    start = text.index("cat")
    row = score(loaded, tiny.score_requests([(text, start, start + 3)]))[0].to_pylist()[0]
    assert row["tokens"] == ["cat"]
    assert row["flags"].startswith("truncated: ")
    assert row["logprobs"][0] < 0


def test_tokenizer_without_mask_token_raises():
    loaded = tiny.load_model("roberta", tokens="bytes")
    with pytest.raises(ModelError, match="no mask token"):
        score(loaded, tiny.score_requests([("gato", 0, 4)]))
