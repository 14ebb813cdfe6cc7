"""Values of served models equal those of the same model loaded locally, over all protocols, forms and tokenizers."""

from dataclasses import replace

import pyarrow as pa
import pytest
from support import served, tiny
from support.engines import generate, score
from support.engines import generate as generate_locally
from support.engines import score as score_locally
from support.scoring import build_requests, item
from vernacular.inference.schema import MemoryJournal
from vernacular.inference.server.served import open_server
from vernacular.protocols.schema import REQUESTS

QUESTION = item(context="Choveu.", question="Que pasou?", choices=["choveu", "non choveu", "nevou"], gold=[0])
GEORGIAN = item("ka", context="დღეს", question="სად წავედით?", choices=["ბაზარში", "სახლში"], gold=[0])
ARABIC = item("ar", context="أكلت القطة", question="ماذا أكلت؟", choices=["السمك", "اللحم", "الخبز"], gold=[0])
CASES = {
    "letters": ("passage", [QUESTION, GEORGIAN, ARABIC], {"option_rotations": 2}),
    "options": ("passage", [QUESTION, GEORGIAN, ARABIC], {}),
    "acceptability": ("sentence", [item("s", context="Ela canta.", extra={"label": "1"})], {}),
    "minimal_pair": ("pair", [item(context="დღეს", choices=["წავედით.", "წავიდა."], gold=[0])], {}),
    "last_word": ("continuation", [item(context="Fun á", target="estación")], {}),
    "cloze": ("cloze", [item(context="Ana __ ben.", choices=["canta", "cantan"], gold=[0])], {"score_unfilled_gap": True}),
    "target_word": ("target_word", [item(context="Ela [MASK] ben.", choices=["canta", "cantan", "🙂"], gold=[0])], {}),
}  # fmt: skip
COMPARED = ("request_id", "tokens", "offsets", "is_greedy", "n_prompt_tokens", "rendered", "flags")


def requests_of(protocol: str, **fields) -> pa.Table:
    item_type, items, options = CASES[protocol]
    rows = [row | fields for row in build_requests(items, item_type, protocol, **options)]
    return pa.Table.from_pylist(rows, schema=REQUESTS.schema)


@pytest.fixture(scope="module", params=["vllm", "sglang", "echo"])
def form(request):
    return request.param


@pytest.fixture(scope="module", params=["bytes", "bytes-bos"])
def models(request, form, tmp_path_factory):
    """(the model loaded locally, the same model served)"""
    local = served.trained_model(request.param)
    with served.Server(local, form) as server:
        record = served.record(server, tmp_path_factory.mktemp("model"), tokenizer=local)
        yield local, open_server(record)


@pytest.mark.parametrize("protocol", CASES)
def test_scores_equal_local_scores(models, protocol):
    local, remote = models
    requests = requests_of(protocol)
    expected, actual = score_locally(local, requests)[0].to_pylist(), score(remote, requests)[0].to_pylist()
    assert [[row[name] for name in COMPARED] for row in actual] == [
        [row[name] for name in COMPARED] for row in expected
    ]
    for row, expected_row in zip(actual, expected, strict=True):
        assert row["logprobs"] == pytest.approx(expected_row["logprobs"], abs=1e-4)
    assert any(len(row["tokens"]) > 1 for row in actual) or protocol == "letters"


def test_extras_are_null_and_reported(models):
    table, metadata = score(models[1], requests_of("target_word"))
    assert table["entropy"].null_count == table.num_rows
    assert metadata["engine"]["fallback"] == ["entropy, rank: not returned by the server"]


def test_min_k_plus_plus_is_rejected_by_name(models):
    requests = pa.Table.from_pylist(
        build_requests([item(context="Ela canta.")], "text", "text", min_k_plus_plus=True), schema=REQUESTS.schema
    )
    table, metadata = score(models[1], requests)
    assert metadata["engine"]["fallback"] == ["min_k_plus_plus: not returned by the server"]
    [row] = table.to_pylist()
    assert row["logprobs"]
    assert (row["logprob_mean"], row["logprob_sd"]) == (None, None)


def test_letters_of_a_question_are_one_request_if_labels_are_returned(models, form):
    remote, requests = models[1], requests_of("letters")
    _, metadata = score(remote, requests)
    n_contexts = 6 if form != "echo" else requests.num_rows  # three items in two orders
    assert metadata["counters"]["calls"] == metadata["counters"]["server"]["requests"] == n_contexts


def test_truncated_and_empty_spans_have_the_flags_of_local_scoring(models, tmp_path):
    local, remote = models
    texts = [("O gato dorme. " * 120 + "A choiva cae.", 1680, 1693), ("O gato", 2, 2), ("O", 0, 1)]
    requests = tiny.score_requests(texts)
    limited = [replace(loaded, max_length=64) for loaded in (local, remote)]
    expected, actual = score_locally(limited[0], requests)[0], score(limited[1], requests)[0]
    for name in ("flags", "tokens", "offsets"):
        assert actual[name].to_pylist() == expected[name].to_pylist()
    assert "truncated" in actual["flags"][0].as_py()
    assert actual["flags"][1].as_py() == "empty"


def test_text_that_only_fits_in_windows_is_an_error_of_its_row(models):
    local, remote = models
    long, short = "O gato dorme. " * 12, "O gato dorme."
    requests = tiny.score_requests([(long, 0, len(long)), (short, 0, len(short))], extras=["rolling"])
    limited = [replace(loaded, max_length=64) for loaded in (local, remote)]
    expected = score_locally(limited[0], requests)[0].to_pylist()
    before = remote.client.usage.requests
    actual = score(limited[1], requests)[0].to_pylist()
    message = "error: expected a text of at most 64 tokens, because servers score no windows"
    assert [row["flags"] for row in actual] == [message, None]
    assert actual[0]["logprobs"] is None
    assert remote.client.usage.requests == before + 1  # nothing is sent for the long text
    assert expected[0]["logprobs"] is not None
    assert actual[1]["logprobs"] == pytest.approx(expected[1]["logprobs"], abs=1e-4)


def continuations(texts: list[str], **fields) -> pa.Table:
    rows = [
        {"request_id": f"r{i}", "item_id": f"i{i}", "role": "response", "kind": "generate", "prefix": "", "text": text,
         "max_new_tokens": 8, "stop": []} | fields
        for i, text in enumerate(texts)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=REQUESTS.schema)


@pytest.mark.parametrize("stops", [["\n", "."], list("\n.;:"), list("\n.;:e"), list("\n.;:!?eao ")], ids=len)
def test_greedy_texts_equal_local_texts(models, form, stops):
    local, remote = models
    requests = continuations(["The keys to the", "O gato dorme no", "დღეს დილით", "Jutros smo"], stop=stops)
    expected = generate_locally(local, requests, journal=MemoryJournal())[0].to_pylist()
    actual = generate(remote, requests, journal=MemoryJournal())[0].to_pylist()
    same = ("output", "finish_reason", "n_prompt_tokens", "flags", "n_tokens", "raw_output")
    cut = form != "vllm"  # before the stop string
    if len(stops) > 4:  # a server accepts four, and continues after the others
        same = same[:4]
    for name in same[:4] if cut else same:
        assert [row[name] for row in actual] == [row[name] for row in expected], name


def test_samples_of_a_prompt_have_seeds_of_their_own(models):
    requests = continuations(["O gato dorme no"] * 4, gen_kwargs={"temperature": 5.0})
    texts = [generate(models[1], requests)[0]["raw_output"].to_pylist() for _ in range(2)]
    assert len(set(texts[0])) == 4
    assert texts[0] == texts[1]


def test_text_that_the_server_cuts_is_flagged(tmp_path):
    def cuts(server, original, ids, n, *sampling):
        return original(ids, min(n, 5), *sampling)

    local = served.trained_model()
    with served.Server(local, lie={"generate": cuts}) as server:
        remote = open_server(served.record(server, tmp_path, tokenizer=local))
        requests = continuations(["O gato dorme no", "Jutros smo"]).to_pylist()
        requests[1]["max_new_tokens"] = 5
        rows = generate(remote, pa.Table.from_pylist(requests, schema=REQUESTS.schema))[0].to_pylist()
    assert [row["flags"] for row in rows] == ["cut: by a limit of the server, below that of the request", None]
