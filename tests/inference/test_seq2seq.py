"""Encoder-decoders: log-probabilities are minus the loss of labels, texts those of `generate`, words are filled in."""

import pyarrow as pa
import pytest
import torch
from peft import LoraConfig, get_peft_model
from support import encoder_decoders, tiny
from support.encoder_decoders import generation_rows
from support.engines import generate, score
from support.scoring import build_requests, item, results_of
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.files import check_settings, kind_of
from vernacular.checkpoints.resolve import resolve
from vernacular.config.load import load as load_config
from vernacular.config.references import check_references
from vernacular.core import artifacts
from vernacular.core.errors import ConfigError, ModelError
from vernacular.core.metadata import RequestsMetadata
from vernacular.core.validate import Problems
from vernacular.inference.engine import Local
from vernacular.inference.job.run import run_group
from vernacular.inference.job.work import not_answerable, work_units
from vernacular.inference.model.load import load, use_adapter
from vernacular.inference.model.loaded import check_is_causal
from vernacular.inference.schema import MemoryJournal
from vernacular.protocols.schema import REQUESTS

PROMPTS = ["O gato dorme no", "Question: Which animal sleeps on the roof? Answer:", "A choiva cae", "O"]
ENDINGS = [" tellado", " tellado e ladra", " gato", " o gato na rúa", " A"]
PAIRS = [(prompt, ending) for prompt in PROMPTS for ending in ENDINGS]
ARCHITECTURES = ["t5", "byt5", "bart", "nllb"]


def requests(pairs=PAIRS, **options) -> pa.Table:
    return tiny.score_requests([(p + e, len(p), len(p + e)) for p, e in pairs], **options)


def ids_of(loaded, text: str, *, special: bool = True) -> list[int]:
    return loaded.tokenizer(text, add_special_tokens=special)["input_ids"]


def loss_logprob(loaded, prompt: str, span: str, start=None, special: bool = True) -> float:
    """Return minus the loss of a span's tokens, times their number, from transformers' own pass over it alone."""
    source, labels = (torch.tensor([ids_of(loaded, text, special=s)]) for text, s in ((prompt, special), (span, False)))
    decoder = torch.cat([torch.tensor([start or loaded.start_ids]), labels[:, :-1]], dim=1)
    with torch.no_grad():
        output = loaded.model(input_ids=source, decoder_input_ids=decoder)
    logits = output.logits[0, -labels.shape[1] :]
    return -float(torch.nn.functional.cross_entropy(logits, labels[0])) * labels.shape[1]


def sums(table: pa.Table) -> list[float]:
    return [sum(row) for row in table["logprobs"].to_pylist()]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_log_likelihood_is_minus_the_loss_of_the_labels(arch):
    loaded = encoder_decoders.load_model(arch)
    table, metadata = score(loaded, requests())
    expected = [loss_logprob(loaded, prompt, ending.strip()) for prompt, ending in PAIRS]
    assert sums(table) == pytest.approx(expected, rel=1e-5)
    assert metadata["engine"]["strategy"] == "prefix"
    assert metadata["engine"]["fallback"] == []
    assert table["flags"].null_count == len(table)
    offsets = table["offsets"].to_pylist()
    assert [
        (prompt + ending)[o[0][0] : o[-1][1]].strip() for (prompt, ending), o in zip(PAIRS, offsets, strict=True)
    ] == [ending.strip() for _, ending in PAIRS]


@pytest.mark.parametrize("budget", [16, 40, 4096])
def test_scores_do_not_depend_on_batches_and_order(budget):
    expected = sums(score(encoder_decoders.load_model("t5"), requests())[0])
    loaded = encoder_decoders.load_model("t5", max_batch_tokens=budget)
    assert sums(score(loaded, requests())[0]) == pytest.approx(expected, rel=1e-5)
    assert sums(score(loaded, requests(PAIRS[::-1]))[0])[::-1] == pytest.approx(expected, rel=1e-5)
    assert sums(score(loaded, requests(), strategy="plain")[0]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("budget", [16, 4096])
def test_encoder_runs_once_per_distinct_prompt(budget):
    loaded = encoder_decoders.load_model("bart", max_batch_tokens=budget)
    score(loaded, requests(PAIRS[:2]))  # the self-checks
    seen = []
    loaded.model.get_encoder().register_forward_pre_hook(
        lambda module, args, kwargs: seen.extend(kwargs["input_ids"].tolist()), with_kwargs=True
    )
    prepared, checks = requests(), len(seen)
    score(loaded, prepared)
    read = [tuple(token for token in row if token != loaded.tokenizer.pad_token_id) for row in seen[checks:]]
    distinct = [tuple(ids_of(loaded, prompt)) for prompt in PROMPTS]
    assert sorted(read[-len(distinct) :]) == sorted(distinct)  # after those of the self-check
    assert set(read[: -len(distinct)]) < {*distinct}


def test_killed_evaluation_continues_from_its_journal():
    loaded, journal = encoder_decoders.load_model("t5", max_batch_tokens=16), MemoryJournal()
    first, _ = score(loaded, requests(), journal=journal)
    again, metadata = score(loaded, requests(), journal=journal)
    assert again["logprobs"].to_pylist() == first["logprobs"].to_pylist()
    assert metadata["counters"]["forwards"] == 0
    assert metadata["counters"]["batches_resumed"] > 3


def test_out_of_memory_halves_the_batches():
    expected = sums(score(encoder_decoders.load_model("t5"), requests())[0])
    loaded = encoder_decoders.load_model("t5")

    def allocate(module, inputs):
        if len(inputs[0]) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    loaded.model.get_decoder().embed_tokens.register_forward_pre_hook(allocate)
    table, metadata = score(loaded, requests())
    assert metadata["counters"]["oom_retries"]
    assert metadata["counters"]["out_of_memory"] == 0
    assert sums(table) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("arch", ["t5", "byt5"])
def test_words_of_a_text_are_filled_in_one_by_one(arch):
    loaded, text = encoder_decoders.load_model(arch), "O gato dorme no tellado."
    table, metadata = score(loaded, tiny.score_requests([(text, 0, len(text))]))
    sentinel = 258 if arch == "byt5" else loaded.tokenizer.convert_tokens_to_ids("<extra_id_0>")
    ids = ids_of(loaded, text)
    names = loaded.tokenizer.convert_ids_to_tokens(ids)
    starts = [i for i, name in enumerate(names) if name.startswith((" ", "▁")) or (arch == "byt5" and i == 0)]
    end = len(ids) - 1
    expected = []
    for low, high in zip(starts, [*starts[1:], end], strict=True):
        source = torch.tensor([[*ids[:low], sentinel, *ids[high:]]])
        decoder = torch.tensor([[*loaded.start_ids, sentinel, *ids[low : high - 1]]])
        logits = loaded.model(input_ids=source, decoder_input_ids=decoder).logits[0, 1:].log_softmax(-1)
        expected += logits.gather(-1, torch.tensor(ids[low:high])[:, None])[:, 0].tolist()
    assert len(starts) == 5
    assert table["logprobs"][0].as_py() == pytest.approx(expected, abs=1e-4)
    assert metadata["engine"]["pll"] == ["infilling"]


def test_texts_without_a_prompt_have_pseudo_bits_and_others_have_none():
    loaded = encoder_decoders.load_model("t5")
    items = [item(context="Ola.", choices=["O gato dorme.", "O gato dormen."], gold=[0])]
    rows = build_requests(items, "sentence", "minimal_pair")
    table, _ = score(loaded, pa.Table.from_pylist(rows, schema=REQUESTS.schema))
    [result] = results_of("minimal_pair", items, rows, table.to_pylist(), fills_in=True)
    values = result["metrics"]
    assert {"answer_bits", "pseudo_bits"} <= values.keys()
    assert not {"bits", "pseudo_answer_bits", "min_20"} & values.keys()
    assert values["surprisal_good"] == pytest.approx(-loss_logprob(loaded, "Ola.", "O gato dorme."), rel=1e-5)


@pytest.mark.parametrize("arch", ["t5", "byt5"])
def test_items_with_and_without_a_context_are_as_each_alone(arch):
    loaded, sentences = encoder_decoders.load_model(arch), ["O gato dorme.", "O gato dormen."]
    items = [
        item(item_id=f"i{i}", context=text, choices=sentences, gold=[0]) for i, text in enumerate(("", "Ola.", ""))
    ]

    def rows_of(items):
        rows = build_requests(items, "sentence", "minimal_pair")
        table, metadata = score(loaded, pa.Table.from_pylist(rows, schema=REQUESTS.schema))
        fills_in = metadata["engine"]["pll"] == ["infilling"]
        return fills_in, results_of("minimal_pair", items, rows, table.to_pylist(), fills_in=fills_in)

    fills_in, together = rows_of(items)
    assert fills_in
    for own, row in zip(items, together, strict=True):
        [alone] = rows_of([own])[1]
        assert row["metrics"] == pytest.approx(alone["metrics"], rel=1e-5)
        assert row["predicted_indices"] == alone["predicted_indices"]
        assert "pseudo_bits" in row["metrics"]
        assert ("answer_bits" in row["metrics"]) == bool(own["context"])
        assert "bits" not in row["metrics"]


def test_model_that_fills_in_no_words_scores_no_text_without_a_prompt():
    loaded, text = encoder_decoders.load_model("bart"), "O gato dorme."
    [row] = score(loaded, tiny.score_requests([(text, 0, len(text))]))[0].to_pylist()
    assert row["flags"] == "not applicable: the model does not fill in words"
    metadata = RequestsMetadata(protocol="acceptability", fingerprint="x", whole_texts=True)
    assert "not trained to fill in words" in not_answerable(loaded.record, metadata)
    assert not_answerable(encoder_decoders.record("t5"), metadata) is None
    order_test = RequestsMetadata(protocol="lm_eval", fingerprint="x", whole_texts=True, causal_only=True)
    assert "requires a causal model" in not_answerable(encoder_decoders.record("t5"), order_test)


def test_word_ends_of_a_last_word():
    loaded = encoder_decoders.load_model("t5")
    [row] = score(loaded, requests([PAIRS[1]], extras=["word_end_logprobs", "entropy", "rank"]))[0].to_pylist()
    n = len(row["tokens"])
    assert len(row["word_end_logprobs"]) == n + 1
    assert len(row["entropy"]) == len(row["rank"]) == n
    assert all(value < 0 for value in row["word_end_logprobs"])


def test_prompt_beyond_the_encoder_is_cut_and_a_long_span_is_an_error():
    loaded = encoder_decoders.load_model("bart")
    long = "O gato dorme no tellado e ladra " * 20
    cut, span = score(loaded, requests([(long, " gato"), ("O", " " + long)]))[0].to_pylist()
    n = len(ids_of(loaded, long.strip())) - 64
    assert cut["flags"] == f"truncated: {n} tokens dropped"
    assert cut["n_prompt_tokens"] == 64
    assert sum(cut["logprobs"]) < 0
    assert span["flags"].startswith("error: expected a span of at most 64 tokens, got ")


@pytest.mark.parametrize("config", [{}, {"forced_bos_token_id": 0, "forced_eos_token_id": 2}])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_greedy_texts_are_those_of_generate(arch, config):
    if config and arch in ("t5", "byt5"):
        pytest.skip("no tokens are forced")
    loaded = encoder_decoders.load_model(arch, config=config)
    table, metadata = generate(loaded, generation_rows(PROMPTS))
    for prompt, row in zip(PROMPTS, table.to_pylist(), strict=True):
        output = loaded.model.generate(torch.tensor([ids_of(loaded, prompt)]), max_new_tokens=9)
        assert row["raw_output"] == loaded.tokenizer.decode(output[0], skip_special_tokens=True), prompt
        assert row["flags"] is None
    [strategy] = metadata["engine"]["strategies"]
    assert strategy["used"] == "batch"


def test_prompt_and_text_beyond_the_positions_are_errors_of_their_rows():
    loaded = encoder_decoders.load_model("bart")
    long = "O gato dorme no tellado e ladra " * 20
    first, second = generate(loaded, generation_rows([long, "O gato"]))[0].to_pylist()
    assert first["flags"].startswith("error: expected at most 64 tokens, got ")
    assert second["flags"] is None
    [row] = generate(loaded, generation_rows(["O gato"], max_new_tokens=100))[0].to_pylist()
    assert row["flags"] == "error: expected at most 64 tokens to generate, got 100"


def about(language: str, **fields) -> RequestsMetadata:
    return RequestsMetadata(protocol="options", fingerprint="x", language=language, **fields)


def test_languages_of_prompt_and_span_are_those_of_the_evaluation():
    loaded = encoder_decoders.load_model("nllb")
    prompt, ending = PAIRS[0]
    metadata = about("en", input_language="gl", output_language="ca")
    table = artifacts.with_metadata(requests([PAIRS[0]]), REQUESTS, metadata)
    [actual] = sums(score(loaded, table)[0])
    codes = loaded.tokenizer.convert_tokens_to_ids(["glg_Latn", "cat_Latn"])
    source = torch.tensor([[codes[0], *ids_of(loaded, prompt)[1:]]])
    labels = ids_of(loaded, ending.strip(), special=False)
    decoder = torch.tensor([[loaded.start_ids[0], codes[1], *labels[:-1]]])
    logits = loaded.model(input_ids=source, decoder_input_ids=decoder).logits[0, 1:].log_softmax(-1)
    assert actual == pytest.approx(float(logits.gather(-1, torch.tensor(labels)[:, None]).sum()), rel=1e-5)
    assert actual != pytest.approx(sums(score(loaded, requests([PAIRS[0]]))[0])[0], rel=1e-4)


def test_texts_are_generated_in_the_language_of_the_evaluation():
    loaded = encoder_decoders.load_model("nllb")
    table = generate(loaded, artifacts.with_metadata(generation_rows(PROMPTS), REQUESTS, about("gl")))[0]
    loaded.tokenizer.src_lang = "glg_Latn"
    token = loaded.tokenizer.convert_tokens_to_ids("glg_Latn")
    try:
        prompts = [torch.tensor([ids_of(loaded, prompt)]) for prompt in PROMPTS]
    finally:
        loaded.tokenizer.src_lang = "eng_Latn"
    outputs = [loaded.model.generate(ids, max_new_tokens=9, forced_bos_token_id=token)[0] for ids in prompts]
    expected = [loaded.tokenizer.decode(output, skip_special_tokens=True) for output in outputs]
    assert table["raw_output"].to_pylist() == expected


def test_language_without_a_token_is_not_applicable(tmp_path):
    encoder_decoders.save("nllb", tmp_path / "nllb")
    record = resolve("n", str(tmp_path / "nllb"), tmp_path / "converted")
    assert not_answerable(record, about("gl")) is None
    reason = not_answerable(record, about("sr-Latn"))
    assert (
        reason
        == "options is not possible: the tokenizer of n has no token for the language sr-Latn. language_codes may name one."
    )
    assert not_answerable(record | {"language_codes": {"sr-Latn": "srp_Cyrl"}}, about("sr-Latn")) is None
    reason = not_answerable(record | {"language_codes": {"sr-Latn": "srp-Cyrl"}}, about("sr-Latn"))
    assert 'language_codes: expected a code of its tokenizer, got "srp-Cyrl". Did you mean "srp_Cyrl"?' in reason


def test_languages_are_part_of_the_key(tmp_path):
    encoder_decoders.save("nllb", tmp_path / "nllb")
    record = resolve("n", str(tmp_path / "nllb"), tmp_path / "converted")
    keys = set()
    for number, (language, codes) in enumerate([("gl", None), ("ca", None), ("gl", {"gl": "por_Latn"})]):
        path = tiny.write_requests(tmp_path / f"e{number}.parquet", requests(), protocol="options", language=language)
        keys |= {unit.key for unit in work_units(record | {"language_codes": codes}, {"e": path})}
    assert len(keys) == 3


def test_jobs_store_the_outputs_of_saved_models(tmp_path):
    encoder_decoders.save("t5", tmp_path / "t5")
    record = resolve("t5", str(tmp_path / "t5"), tmp_path / "converted")
    assert (record.kind, record.architecture) == ("seq2seq", "T5ForConditionalGeneration")
    record |= {"dtype": "float32", "device": "cpu", "chat": False}
    path = tiny.write_requests(tmp_path / "e.parquet", requests(), protocol="options")
    for how in ("computed", "found in the store"):
        statuses, failed = run_group([record], {"e": path}, tmp_path / "store")
        assert (statuses, failed) == ({"t5": {"e": how}}, {"t5": {}})


def test_adapter_of_an_encoder_decoder_equals_the_merged_model(tmp_path):
    encoder_decoders.save("t5", tmp_path / "t5")
    base = resolve("t5", str(tmp_path / "t5"), tmp_path / "converted")
    base |= {"dtype": "float32", "device": "cpu", "chat": False}
    config = LoraConfig(r=2, target_modules=["q", "v"], task_type="SEQ_2_SEQ_LM", init_lora_weights=False)
    adapted = get_peft_model(encoder_decoders.model("t5"), config)
    adapted.save_pretrained(tmp_path / "lora")
    loaded = load(base)
    before = sums(score(loaded, requests())[0])
    with use_adapter(loaded, resolve_adapter("lora", str(tmp_path / "lora"), base)) as adapter:
        values = sums(score(adapter, requests())[0])
    merged = encoder_decoders.load_model("t5")
    merged.model = adapted.merge_and_unload()
    assert values == pytest.approx(sums(score(merged, requests())[0]), rel=1e-4)
    assert values != pytest.approx(before, rel=1e-3)
    assert sums(score(loaded, requests())[0]) == before


def test_template_of_a_chat_is_the_prompt_of_the_encoder():
    loaded = encoder_decoders.load_model("t5", chat=True)
    loaded.tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}answer:{% endif %}"
    )
    question = item(question="Que animal dorme no tellado?", choices=["o gato", "a cadela"], gold=[0])
    rows = build_requests([question], "question", "letters")
    try:
        table = score(loaded, pa.Table.from_pylist(rows, schema=REQUESTS.schema))[0].to_pylist()
        texts = generation_rows(["Ola"], messages=[{"role": "user", "content": "Ola"}])
        [text] = generate(loaded, texts)[0].to_pylist()
        ids = loaded.tokenizer.apply_chat_template(texts["messages"][0].as_py(), add_generation_prompt=True)[
            "input_ids"
        ]
        expected = loaded.model.generate(torch.tensor([ids]), max_new_tokens=9)[0]
    finally:
        loaded.tokenizer.chat_template = None  # the tokenizer is shared
    for row, letter in zip(table, "AB", strict=True):
        assert row["rendered"].startswith("user: ")
        prompt = row["rendered"][: row["rendered"].rindex("answer:")] + "answer:"
        # as `apply_chat_template`, without the end token that the tokenizer adds to a text
        own = loss_logprob(loaded, prompt, letter, special=False)
        assert sum(row["logprobs"]) == pytest.approx(own, rel=1e-5)
    assert text["raw_output"] == loaded.tokenizer.decode(expected, skip_special_tokens=True)


def test_decoder_that_reads_later_tokens_is_refused():
    loaded = encoder_decoders.load_model("t5")
    loaded.model.decoder.config.is_decoder = False
    for block in loaded.model.decoder.block:
        block.layer[0].SelfAttention.is_causal = False
    with pytest.raises(ModelError, match="reads later tokens"):
        check_is_causal(loaded, [3, 4, 5])


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("seq2seq", {"bos": "always"}, "bos: always: a setting of causal models, and its kind is seq2seq"),
        ("seq2seq", {"strategy": "tree"}, "strategy: tree: a setting of causal models"),
        ("seq2seq", {"generation_engine": "vllm"}, "generation_engine: vllm: a setting of causal models"),
        ("causal", {"language_codes": {"gl": "x"}}, "language_codes: a setting of encoder-decoder models"),
    ],
)
def test_setting_of_another_kind_of_model_is_an_error(kind, settings, message):
    with pytest.raises(ModelError, match=message):
        check_settings("m", kind, settings)


def test_check_names_settings_of_other_kinds_and_the_closest_key(tmp_path):
    encoder_decoders.save("t5", tmp_path / "t5")
    entry = {"source": str(tmp_path / "t5"), "bos": "always"}
    evaluations = [{"task": "cola", "languages": ["gl"]}]
    problems = Problems()
    check_references(load_config([], {"models": {"t": entry}, "evaluations": evaluations, "data": "samples"}), problems)
    with pytest.raises(ConfigError, match="model t: bos: always: a setting of causal models, and its kind is seq2seq"):
        problems.raise_all()
    with pytest.raises(ConfigError, match=r"language_code\b.*language_codes"):
        load_config([], {"models": {"t": entry | {"language_code": {"gl": "gl"}}}, "evaluations": evaluations})


def test_settings_are_checked_before_a_model_is_loaded(tmp_path):
    with pytest.raises(ModelError, match="bos: never"):
        Local(encoder_decoders.record("t5", directory=str(tmp_path / "none"), bos="never"))


def test_kind_follows_from_the_config():
    assert kind_of("m", {"is_encoder_decoder": True}, "auto") == "seq2seq"
    with pytest.raises(ModelError, match="kind: expected a causal model, got an encoder-decoder: t5"):
        kind_of("m", {"is_encoder_decoder": True, "model_type": "t5"}, "causal")
    with pytest.raises(ModelError, match="kind: expected an encoder-decoder, got llama"):
        kind_of("m", {"model_type": "llama"}, "seq2seq")


def test_no_first_token_of_the_decoder_is_an_error():
    with pytest.raises(ModelError, match="decoder_start_token_id"):
        encoder_decoders.load_model("t5", config={"decoder_start_token_id": None})
