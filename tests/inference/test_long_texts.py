"""Texts longer than the context as lm-eval treats them: rolling windows, and prompts truncated from the left."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from support import tiny
from support.engines import score
from vernacular.inference.generation.prepare import prepare_prompt, prepare_prompts
from vernacular.inference.scoring.head import Body
from vernacular.inference.scoring.plan import PlanLimits, plan
from vernacular.inference.scoring.prepare import PreparedRequest, windows
from vernacular.inference.scoring.trie import Path, build_trie
from vernacular.protocols.schema import REQUESTS

TEXT = "O gato dorme no tellado e a cadela ladra na rúa. " * 12


@pytest.mark.parametrize("n_tokens", [3, 4, 5, 8, 9])
@pytest.mark.parametrize("max_length", [2, 4])
def test_windows_predict_each_token_once_and_read_at_most_the_context(n_tokens, max_length):
    ids = [99, *range(n_tokens)]
    parts = windows(PreparedRequest("r", ids=np.array(ids), first=1, stop=len(ids)), max_length)
    assert [token for part in parts for token in part.ids[part.first : part.stop]] == ids[1:]
    for part in parts:
        assert part.first >= 1
        assert len(part.ids) - 1 <= max_length, "the last token is not read"
        assert part.ids[0] == 99 or len(part.ids) == max_length + 1, "later windows have all context that fits"


def test_long_text_is_scored_in_windows():
    loaded = tiny.load_model("llama", max_length=40)
    requests = tiny.score_requests([(TEXT, 0, len(TEXT))], extras=["rolling", "score_bos"])
    table, metadata = score(loaded, requests)
    (row,) = table.to_pylist()
    assert row["flags"] is None
    assert metadata["tokenizer"]["texts_in_windows"] == 1
    ids = loaded.tokenizer(TEXT)["input_ids"]  # begins with BOS, which lm-eval scores after another BOS
    assert len(row["logprobs"]) == len(row["tokens"]) == len(row["offsets"]) == len(ids) > 40
    ids = [loaded.bos_id, *ids]
    expected = []
    for start in range(1, len(ids), 40):
        stop = min(start + 40, len(ids))
        read = ids[max(0, stop - 41) : stop]
        with torch.inference_mode():
            logprobs = loaded.model(torch.tensor([read[:-1]])).logits[0].log_softmax(-1)
        expected += [float(logprobs[len(read) - 1 - (stop - i), ids[i]]) for i in range(start, stop)]
    assert row["logprobs"] == pytest.approx(expected, abs=1e-4)


def test_long_texts_among_others_get_their_own_scores():
    loaded = tiny.load_model("llama", max_length=40)
    texts = [TEXT, TEXT[:30], TEXT[50:] + "Fin.", TEXT[:31]]
    rolling, other = (
        tiny.score_requests([(t, 0, len(t)) for t in texts], extras=extras) for extras in (["rolling"], [])
    )
    # one text is too long without windows
    requests = pa.concat_tables([rolling, other.slice(1, 1), rolling.slice(0, 1)])
    rows = score(loaded, requests)[0].to_pylist()
    assert [row["request_id"] for row in rows] == requests["request_id"].to_pylist()
    for index, row in enumerate(rows):
        (alone,) = score(loaded, requests.slice(index, 1))[0].to_pylist()
        assert row["tokens"] == alone["tokens"]
        assert row["logprobs"] == pytest.approx(alone["logprobs"], abs=1e-5)
        assert len(row["logprobs"]) == len(row["tokens"])


def test_prefixes_of_a_long_text_share_their_keys():
    """A text of 2,000 tokens in passes of 8 to 64 holds its keys once, not once per pass; its scores are the same."""
    loaded = tiny.load_model("llama", max_length=4096)
    ids = np.random.default_rng(0).integers(5, 200, 2000, dtype=np.int32)
    trie = build_trie([Path(ids, 1, np.append(ids[1:], np.int32(5)))])
    body = Body(loaded, tree=True)
    hidden = [body.hidden(batch) for batch in plan(trie, "tree", PlanLimits(budget=16, row=16, forward=1))]
    assert len(hidden) > 30
    keys = [keys for layers in body.cached.values() for keys, _ in layers]
    stored = sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in keys}.values())
    assert stored <= max(tensor.nbytes for tensor in keys) * len(next(iter(body.cached.values())))
    with torch.inference_mode():
        expected = loaded.body(torch.from_numpy(ids[None]).long())[0]
    torch.testing.assert_close(torch.cat(hidden, dim=1), expected, atol=1e-4, rtol=1e-4)


def test_text_has_no_scores_if_a_window_has_none():
    loaded = tiny.load_model("llama", max_length=40)
    long = TEXT[:300] + "%" + TEXT[300:]
    with torch.no_grad():  # a token that is in one window only
        loaded.model.get_input_embeddings().weight[loaded.tokenizer("%")["input_ids"][-1]] = float("nan")
    n_tokens = len(loaded.tokenizer(long)["input_ids"])
    requests = tiny.score_requests([(long, 0, len(long)), (TEXT[:30], 0, 30)], extras=["rolling"])
    table, metadata = score(loaded, requests)
    long, short = table.to_pylist()
    assert n_tokens > 120
    assert long["logprobs"] is None
    assert long["flags"] == "error: the model returned NaN"
    assert short["flags"] is None
    assert None not in short["logprobs"]
    assert metadata["flags"] == {"error": 1}


def test_short_text_is_scored_as_any_other():
    requests = tiny.score_requests([(TEXT[:50], 0, 50)], extras=["rolling"])
    plain = tiny.score_requests([(TEXT[:50], 0, 50)])
    loaded = tiny.load_model("gpt2", max_length=64)  # whose tokenizer adds no BOS
    scores = [score(loaded, table)[0].column("logprobs").to_pylist()[0] for table in (requests, plain)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


@pytest.mark.parametrize(("extras", "flag"), [(["truncate_left"], "truncated: "), (None, "error: ")])
def test_long_prompt_is_truncated_only_on_request(extras, flag):
    loaded = tiny.load_model("llama", max_length=40)
    [row] = tiny.score_requests([(TEXT, 0, 0)], extras=extras or ()).to_pylist()
    row |= {"kind": "generate", "max_new_tokens": 8}
    prompt = prepare_prompt(loaded, row)
    assert prompt.flag.startswith(flag)
    ids = loaded.tokenizer(TEXT)["input_ids"]
    assert prompt.ids == (ids[-32:] if extras else [])
    assert prepare_prompts(loaded, pa.Table.from_pylist([row], schema=REQUESTS.schema)) == {row["request_id"]: prompt}
