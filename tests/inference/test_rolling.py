"""Windows of long texts: bounds, and log-probabilities equal to those of plain PyTorch under lm-eval's rule."""

import copy
import math

import numpy as np
import pytest
import torch
from support import tiny
from support.engines import score
from vernacular.inference.model.loaded import wrap
from vernacular.inference.scoring.prepare import PreparedRequest, masked_windows, windows

TEXT = "O gato dorme no tellado e a cadela ladra na rúa. " * 6
P = 99  # the prefix token
EXTRAS = ["rolling"]


def request(n_tokens):
    ids = np.array([P, *range(n_tokens)], np.int32)
    return PreparedRequest("r", ids=ids, first=1, stop=len(ids))


def read_and_predicted(parts):
    """Return [(tokens that the model reads, tokens whose log-probability counts), …]."""
    return [(part.ids[: part.stop - 1].tolist(), part.ids[part.first : part.stop].tolist()) for part in parts]


def test_windows_without_overlap():
    assert read_and_predicted(windows(request(10), 4)) == [
        ([P, 0, 1, 2], [0, 1, 2, 3]),
        ([3, 4, 5, 6], [4, 5, 6, 7]),
        ([5, 6, 7, 8], [8, 9]),
    ]


def test_windows_with_overlap():
    assert read_and_predicted(windows(request(10), 4, overlap=2)) == [
        ([P, 0, 1, 2], [0, 1, 2, 3]),
        ([1, 2, 3, 4], [4, 5]),
        ([3, 4, 5, 6], [6, 7]),
        ([5, 6, 7, 8], [8, 9]),
    ]


@pytest.mark.parametrize("n_tokens", [3, 4, 5, 8, 9, 31])
@pytest.mark.parametrize(("max_length", "overlap"), [(2, 0), (4, 0), (4, 2), (4, 3), (8, 4)])
@pytest.mark.parametrize("first", [0, 1])  # 0: no token precedes the text
def test_every_token_is_predicted_once_and_with_enough_context(n_tokens, max_length, overlap, first):
    ids = np.arange(n_tokens + 1, dtype=np.int32)
    parts = windows(PreparedRequest("r", ids=ids, first=first, stop=len(ids)), max_length, overlap)
    assert [token for part in parts for token in part.ids[part.first : part.stop]] == ids[first:].tolist()
    assert [token for part in parts for token in part.span] == ids[first:].tolist()
    assert all(len(part.ids) - 1 <= max_length for part in parts), "the last token is not read"
    assert all(part.first >= overlap + 1 for part in parts[1:])


@pytest.mark.parametrize("n_tokens", [1, 5, 6, 17])
@pytest.mark.parametrize("overlap", [0, 3])
def test_windows_of_a_masked_model_keep_its_special_tokens(n_tokens, overlap):
    ids = np.array([7, *range(100, 100 + n_tokens), 8], np.int32)
    text = PreparedRequest("r", ids=ids, words=ids * 10, first=1, stop=n_tokens + 1, lead=1, tail=1)
    parts = masked_windows(text, 5, overlap)
    assert [token for part in parts for token in part.span] == ids[1:-1].tolist()
    for part in parts:
        assert (part.ids[0], part.ids[-1]) == (7, 8)
        assert len(part.ids) <= 7
        assert (part.words == part.ids * 10).all()
        assert part is parts[0] or part.first >= 1 + overlap


def reference(loaded, ids, max_length, overlap=0):
    """Return ln p of each token after the first, by lm-eval's rule for windows, one window at a time."""
    logprobs, stride = [], max_length - overlap
    for start in [1, *range(1 + max_length, len(ids), stride)]:
        stop = min(len(ids), start + (max_length if start == 1 else stride))
        read = ids[max(0, stop - 1 - max_length) : stop - 1]
        with torch.inference_mode():
            distribution = loaded.model(torch.tensor([read])).logits[0].double().log_softmax(-1)
        first_read = stop - 1 - len(read)
        logprobs += [float(distribution[i - 1 - first_read, ids[i]]) for i in range(start, stop)]
    return logprobs


@pytest.mark.parametrize("overlap", [0, 20])
@pytest.mark.parametrize(("arch", "tokens"), [("llama", "prepend"), ("gpt2", "bytes"), ("qwen2", "bytes-bos")])
def test_long_text_equals_pytorch(arch, tokens, overlap):
    loaded = tiny.load_model(arch, tokens=tokens, max_length=40)
    table, metadata = score(loaded, tiny.score_requests([(TEXT, 0, len(TEXT))], extras=[*EXTRAS, f"overlap:{overlap}"]))
    [row] = table.to_pylist()
    ids = loaded.tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert row["flags"] is None
    assert metadata["tokenizer"]["texts_in_windows"] == 1
    assert len(row["logprobs"]) == len(row["tokens"]) == len(row["offsets"]) == len(ids) > 80
    expected = reference(loaded, [loaded.bos_id, *ids], 40, overlap)
    assert math.fsum(row["logprobs"]) == pytest.approx(math.fsum(expected), rel=1e-6)
    assert row["logprobs"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("tokenizer_limit", "max_length", "flag"),
    [
        (40, None, "tokenizer limit: 40 tokens (model_max_length), fewer than the model reads"),
        (40, 24, None),
        (int(1e30), 40, None),
    ],
)
def test_windows_and_truncation_by_the_limit_of_the_tokenizer_are_flagged(tokenizer_limit, max_length, flag):
    base = tiny.load_model("gpt2")
    tokenizer = copy.copy(base.tokenizer)
    tokenizer.model_max_length = tokenizer_limit
    loaded = wrap(base.model, tokenizer, base.record | {"max_length": max_length})
    table, _ = score(loaded, tiny.score_requests([(TEXT, 0, len(TEXT)), (TEXT[:30], 0, 30)], extras=EXTRAS))
    assert table["flags"].to_pylist() == [flag, None]
    [truncated] = score(loaded, tiny.score_requests([(TEXT, len(TEXT) - 5, len(TEXT))]))[0]["flags"].to_pylist()
    assert truncated.startswith("truncated: ")
    assert truncated.partition("; ")[2] == (flag or "")


def test_bos_of_the_tokenizer_is_scored_only_as_in_lm_eval():
    loaded = tiny.load_model("llama", max_length=40)  # its tokenizer adds BOS
    rows = [
        score(loaded, tiny.score_requests([(TEXT, 0, len(TEXT))], extras=extras))[0].to_pylist()[0]
        for extras in (EXTRAS, [*EXTRAS, "score_bos"])
    ]
    ids = loaded.tokenizer(TEXT)["input_ids"]
    assert [len(row["logprobs"]) for row in rows] == [len(ids) - 1, len(ids)]
    expected = reference(loaded, [loaded.bos_id, *ids], 40)
    assert math.fsum(rows[1]["logprobs"]) == pytest.approx(math.fsum(expected), rel=1e-6)


def test_text_that_fits_is_scored_as_any_other():
    loaded = tiny.load_model("gpt2", max_length=64)
    requests = [tiny.score_requests([(TEXT[:50], 0, 50)], extras=extras) for extras in ([*EXTRAS, "overlap:9"], [])]
    rows = [score(loaded, table)[0].to_pylist()[0] for table in requests]
    assert rows[0]["logprobs"] == pytest.approx(rows[1]["logprobs"], abs=1e-6)


def test_first_token_without_predecessor_is_null():
    loaded = tiny.load_model("gpt2", tokens="bare", max_length=40)
    [row] = score(loaded, tiny.score_requests([(TEXT, 0, len(TEXT))], extras=EXTRAS))[0].to_pylist()
    ids = loaded.tokenizer(TEXT)["input_ids"]
    assert row["logprobs"][0] is None
    assert row["logprobs"][1:] == pytest.approx(reference(loaded, ids, 40), abs=1e-4)


def test_short_window_and_several_texts():
    loaded = tiny.load_model("gpt2")
    texts = [TEXT, TEXT[:30], TEXT[7:]]
    table, metadata = score(
        loaded,
        tiny.score_requests([(text, 0, len(text)) for text in texts], extras=[*EXTRAS, "window:16", "overlap:8"]),
    )
    for row, text in zip(table.to_pylist(), texts, strict=True):
        ids = [loaded.bos_id, *loaded.tokenizer(text)["input_ids"]]
        assert row["logprobs"] == pytest.approx(reference(loaded, ids, 16, 8), abs=1e-4)
    assert metadata["tokenizer"]["texts_in_windows"] == sum(len(loaded.tokenizer(t)["input_ids"]) > 16 for t in texts)


def test_overlap_without_room_is_an_error_of_its_row():
    loaded = tiny.load_model("gpt2", max_length=40)
    [row] = score(loaded, tiny.score_requests([(TEXT, 0, len(TEXT))], extras=[*EXTRAS, "overlap:40"]))[0].to_pylist()
    assert row["flags"] == "error: expected an overlap of less than 40 tokens, the length of a window, got 40"
    assert row["logprobs"] is None


def test_masked_model_scores_each_token_in_one_window():
    loaded = tiny.load_model("bert", max_length=24)
    [row] = score(loaded, tiny.score_requests([(TEXT, 0, len(TEXT))], extras=[*EXTRAS, "overlap:4"]))[0].to_pylist()
    ids = loaded.tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert len(row["logprobs"]) == len(ids) > 24
    special = loaded.tokenizer
    expected = []
    for start in [0, *range(22, len(ids), 18)]:
        stop = min(len(ids), start + (22 if start == 0 else 18))
        window = [special.cls_token_id, *ids[max(0, stop - 22) : stop], special.sep_token_id]
        for i in range(start, stop):
            masked = torch.tensor([window])
            masked[0, 1 + i - max(0, stop - 22)] = special.mask_token_id
            with torch.inference_mode():
                logits = loaded.model(masked, attention_mask=torch.ones_like(masked)).logits[0]
            expected.append(float(logits.log_softmax(-1)[1 + i - max(0, stop - 22), ids[i]]))
    assert row["logprobs"] == pytest.approx(expected, abs=1e-4)
