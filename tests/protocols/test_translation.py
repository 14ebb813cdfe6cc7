"""translation: values of sacrebleu on the written files, corpus scores of resamples, flags, prompts in both directions."""

import contextlib
import functools
import sys

import numpy as np
import pandas as pd
import pytest
import sacrebleu.tokenizers.tokenizer_spm as sacrebleu_spm
from sacrebleu.metrics import BLEU, CHRF
from support.messages import assert_states
from support.optional import TOOLS_PACKAGES, TOOLS_REASON
from support.sample_items import item
from support.scoring import score
from support.stage_run import Run
from support.tools import ROOT
from support.workspace import Workspace
from vernacular.comparison.align import align
from vernacular.comparison.pairwise import compare_sides
from vernacular.config import load as config
from vernacular.core.errors import ConfigError
from vernacular.core.fingerprint import file_fingerprint
from vernacular.data.audit import audit_between, in_language
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task
from vernacular.metrics import language
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.schema import as_table
from vernacular.protocols.build import build
from vernacular.protocols.evaluate import declared_metrics, evaluate, missing_metrics, signature, tool_signatures
from vernacular.protocols.translation import metrics as translation
from vernacular.stages.export import write
from vernacular.statistics.intervals import cluster_bootstrap, expanded_tail
from vernacular.statistics.paired import t_quantile

TASKS = ROOT / "workflow" / "tasks"
FROM, INTO = "flores_from_english", "flores_into_english"
CHRF2PP = CHRF(word_order=2)


def samples(name: str, language: str = "gl") -> tuple[dict, list[dict]]:
    """Return a task and its sample items, in documents of three items."""
    task = load_task(TASKS / f"{name}.yaml")
    items, _ = load_items(task, language, source="samples")
    return task, [each | {"cluster_id": f"document {number // 3}"} for number, each in enumerate(items)]


def requests_of(task, items, protocol="translation", language="gl", **settings):
    settings = {"shots": 0, "seed": 0, "style": "default", "options": {}} | settings
    return build(items, task, language=language, protocol=protocol, **settings)


def generation(request, text, flags=None, finish_reason="stop"):
    names = ("item_id", "role", "request_id")
    row = {name: request[name] for name in names} | {"raw_output": text, "output": text, "flags": flags}
    return row | {"finish_reason": finish_reason, "n_tokens": 5}


def garbled(text: str, seed: int) -> str:
    """Return a text with a quarter of its words left out, which depends on the text."""
    rng = np.random.default_rng([seed, len(text)])
    return " ".join(word for word in text.split() if rng.random() > 0.25)


@functools.cache
def results(seed: int = 0) -> tuple[list[dict], list[dict]]:
    """Return the items of a direction, and the results of outputs made from their references; the last is empty."""
    task, items = samples(FROM)
    requests, _ = requests_of(task, items)
    texts = [garbled(each["target"], seed) for each in items[:-1]] + [" \n"]
    outputs = [generation(*pair) for pair in zip(requests, texts, strict=True)]
    return items, evaluate("translation", items, requests, outputs, [])[0]


def lines(path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1]


@pytest.fixture(autouse=True)
def forget_pieces():
    """Look for the tokenizer of spBLEU anew in each test."""
    (forget := translation._pieces.cache_clear)()
    yield
    forget()


@pytest.fixture
def sentencepiece(tmp_path, monkeypatch):
    """A small SentencePiece model in place of that of FLORES-200; the package is in the environment of the tools."""
    if TOOLS_PACKAGES is None:
        pytest.skip(TOOLS_REASON)
    monkeypatch.setattr(sys, "path", [*sys.path, str(TOOLS_PACKAGES)])
    import sentencepiece

    texts = [each[key] for each in samples(FROM)[1] for key in ("context", "target")]
    path = tmp_path / "flores200sacrebleuspm"
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=file, vocab_size=120, minloglevel=2
        )
    monkeypatch.setattr(translation, "SPM_URL", path.as_uri())
    monkeypatch.setattr(translation, "SPM_SHA256", file_fingerprint(path))
    return path


def test_values_are_those_of_sacrebleu_on_the_written_files(tmp_path):
    items, rows = results()
    write(tmp_path, "translation", items, rows)
    outputs, references = lines(tmp_path / "output.txt"), lines(tmp_path / "reference.txt")
    assert lines(tmp_path / "ids.txt") == [each["item_id"] for each in items]
    assert lines(tmp_path / "source.txt")[0] == items[0]["context"]
    assert len(outputs) == len(items)
    assert outputs[-1] == ""
    values = {row["metric"]: row for row in aggregate(rows, translation.METRICS, seed=0, categories=False)}
    assert values["chrf2pp"]["value"] == CHRF2PP.corpus_score(outputs, [references]).score
    assert values["bleu"]["value"] == BLEU().corpus_score(outputs, [references]).score
    assert 20 < values["bleu"]["value"] < values["chrf2pp"]["value"] < 95
    assert values["chrf2pp"]["value"] != pytest.approx(CHRF().corpus_score(outputs, [references]).score, abs=0.01)
    assert (rows[0]["choices"], rows[0]["gold"], rows[0]["correct"]) == ([items[0]["target"]], [0], None)
    assert values["chrf2pp"]["chance_level"] is None
    assert rows[0]["metrics"]["chrf2pp"] == CHRF2PP.sentence_score(outputs[0], [references[0]]).score
    assert [name for name, row in values.items() if row["headline"]] == ["chrf2pp"]
    assert "spbleu" not in values


def test_signatures_are_those_of_sacrebleu():
    setting = {"protocol": "translation", "shots": 0, "seed": 0, "style": "default"}
    assert "|nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|version:2." in signature("chrf2pp", setting, {})
    assert "|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2." in signature("bleu", setting, {})
    assert "|nrefs:1|case:mixed|eff:no|tok:flores200|smooth:exp|version:2." in signature("spbleu", setting, {})
    assert "nrefs" not in signature("empty", setting, {})


UNSPACED = {
    "zh": ("zh", "猫在树下睡觉，狗在河边喝水。"), "zh-Hant": ("zh", "貓在樹下睡覺，狗在河邊喝水。"), "yue": ("zh", "隻貓喺樹下瞓緊覺。"),
    "ja": ("char", "猫は木の下で眠っています。"), "th": ("char", "แมวนอนอยู่ใต้ต้นไม้"), "lo": ("char", "ແມວນອນຢູ່ກ້ອງຕົ້ນໄມ້"),
    "km": ("char", "ឆ្មាដេកនៅក្រោមដើមឈើ"), "my": ("char", "ကြောင်သည်သစ်ပင်အောက်တွင်အိပ်နေသည်"), "shn": ("char", "မႅဝ်းၼွၼ်းယူႇတႂ်ႈတူၼ်ႈမႆႉ"),
    "bo": ("char", "ཞི་མི་ཤིང་སྡོང་གི་འོག་ལ་ཉལ་འདུག"), "dz": ("char", "བྱི་ལི་ཤིང་གི་འོག་ལུ་ཉལ་ནུག"), "jv-Java": ("char", "ꦏꦸꦕꦶꦁꦠꦸꦫꦸꦲꦶꦁꦔꦶꦱꦺꦴꦂꦮꦶꦠ꧀"),
    "ko": ("13a", "고양이가 나무 아래에서 자고 있어요"), "gl": ("13a", "O gato dorme debaixo da árbore grande"), "ja-Latn": ("13a", "Neko wa ki no shita de nemutte imasu"),
}  # fmt: skip


@pytest.mark.parametrize("language", UNSPACED)
def test_bleu_of_languages_without_spaces_is_that_of_a_tokenizer_of_sacrebleu(language):
    """As a corpus of a perfect, a shortened and another translation, with the signature of the same tokenizer."""
    name, text = UNSPACED[language]
    outputs, references = [text, text[:-3], text[::-1]], [text] * 3
    counts = [translation.statistics(a, b, language) for a, b in zip(outputs, references, strict=True)]
    bleu, sacre = declared_metrics("translation")["bleu"], BLEU(tokenize=name)
    assert (
        float(bleu.corpus(*(np.array([each[key] for each in counts]) for key in bleu.needs)))
        == sacre.corpus_score(outputs, [references]).score
    )
    assert bleu.corpus(*(np.array([counts[0][key]]) for key in bleu.needs)) == pytest.approx(100)
    setting = {"protocol": "translation", "shots": 0, "seed": 0, "style": "default"}
    stated = signature("bleu", setting, tool_signatures("translation", language))
    assert sacre.get_signature().format() in stated
    assert stated.count("tok:") == 1
    assert tool_signatures("generation", language) == {}


@pytest.mark.usefixtures("sentencepiece")
def test_spbleu_is_that_of_sacrebleu_with_the_same_model(sentencepiece, monkeypatch):
    results.cache_clear()
    items, rows = results()
    results.cache_clear()
    monkeypatch.setattr(sacrebleu_spm, "SACREBLEU_DIR", str(sentencepiece.parent))
    (sentencepiece.parent / "models").mkdir()
    sentencepiece.rename(sentencepiece.parent / "models" / sentencepiece.name)
    outputs = [translation.line(row["prediction"]) for row in rows]
    metric = BLEU(tokenize="flores200")
    expected = metric.corpus_score(outputs, [[each["target"] for each in items]]).score
    values = {row["metric"]: row["value"] for row in aggregate(rows, translation.METRICS, seed=0, categories=False)}
    assert values["spbleu"] == expected
    assert values["spbleu"] != pytest.approx(values["bleu"], abs=0.01)
    assert declared_metrics("translation")["spbleu"].tool_signature == metric.get_signature().format()
    assert missing_metrics("translation") == ({}, {})


@pytest.mark.usefixtures("sentencepiece")
def test_another_tokenizer_file_is_not_used(monkeypatch):
    monkeypatch.setattr(translation, "SPM_SHA256", "0" * 64)
    not_installed, not_fetched = missing_metrics("translation")
    assert not_installed == {}
    assert_states(not_fetched["spbleu"], "checksum mismatch", "0" * 64, "this version of Vernacular")
    assert "spbleu#0" not in translation.statistics("a b", "a b")


def test_missing_package_is_the_reason_of_a_missing_metric(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    reason = "sentencepiece is not installed (extra: translation)"
    assert missing_metrics("translation") == ({"spbleu": reason}, {})
    assert missing_metrics("generation") == missing_metrics("lm_eval") == ({}, {})


def plain_draws(rows, references, metric, resamples: int) -> np.ndarray:
    """Return the corpus score of each resample of documents, from its texts."""
    documents: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        documents.setdefault(row["cluster_id"], []).append(index)
    documents = list(documents.values())
    draws = np.random.default_rng(0).integers(len(documents), size=(resamples, len(documents)))
    scores = []
    for drawn in draws:
        indices = [index for number in drawn for index in documents[number]]
        texts = [translation.line(rows[index]["prediction"]) for index in indices]
        scores.append(metric.corpus_score(texts, [[references[index] for index in indices]]).score)
    return np.array(scores)


@pytest.mark.parametrize(("name", "metric"), [("chrf2pp", CHRF2PP), ("bleu", BLEU())])
def test_interval_is_that_of_corpus_scores_of_drawn_documents(name, metric):
    items, rows = results()
    declared = declared_metrics("translation")[name]
    arrays = [np.array([row["metrics"][value] for row in rows]) for value in declared.needs]
    clusters = [row["cluster_id"] for row in rows]
    interval = cluster_bootstrap(declared.corpus, arrays, clusters, resamples=100, seed=0)
    draws = plain_draws(rows, [each["target"] for each in items], metric, 100)
    tail = expanded_tail(len(set(clusters)))
    assert interval == pytest.approx(np.quantile(draws, [tail, 1 - tail]), abs=1e-9)
    assert interval[0] < interval[1]


def test_paired_difference_is_that_of_corpus_scores_of_drawn_documents():
    items, first = results()
    _, second = results(1)
    references = [each["target"] for each in items]
    aligned, sides = align({"a": as_table(first), "b": as_table(second)})
    declared = declared_metrics("translation")["chrf2pp"]
    (row,) = compare_sides(aligned, sides, [("a", "b")], [declared], {}, seed=0, resamples=100, categories=False)
    # items are sorted by their IDs, and so are the documents of the plain draws
    order = sorted(range(len(items)), key=lambda index: items[index]["item_id"])
    draws = [
        plain_draws([rows[i] for i in order], [references[i] for i in order], CHRF2PP, 100) for rows in (first, second)
    ]
    n_documents = len({each["cluster_id"] for each in items})
    error = (draws[1] - draws[0]).std(ddof=1) * np.sqrt(n_documents / (n_documents - 1))
    texts = [[translation.line(each["prediction"]) for each in rows] for rows in (first, second)]
    scores = [CHRF2PP.corpus_score(each, [references]).score for each in texts]
    assert row["difference"] == pytest.approx(scores[1] - scores[0], abs=1e-9)
    half_width = error * t_quantile(0.975, n_documents - 1)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(
        (row["difference"] - half_width, row["difference"] + half_width), abs=1e-9
    )


def test_flags_and_shares_of_outputs():
    task, items = samples(FROM)
    items = items[:6]
    requests, _ = requests_of(task, items)
    texts = [f"  {items[0]['context'].upper()} ", "", "Киша пада полако по крововима.", "42", items[4]["target"]]
    outputs = [generation(*pair) for pair in zip(requests[:5], texts, strict=True)]
    outputs.append(generation(requests[5], None, flags="error: out of memory"))
    rows, metrics = evaluate("translation", items, requests, outputs, [])
    assert [row["flags"] for row in rows] == [
        "copied source",
        "empty answer",
        "wrong script: Cyrl",
        None,
        None,
        "error: out of memory",
    ]
    values = {row["metric"]: (row["value"], row["n"]) for row in aggregate(rows, metrics, seed=0, categories=False)}
    assert values["copied_source"] == values["empty"] == (0.2, 5)
    assert values["wrong_script"] == (pytest.approx(1 / 3), 3)  # an empty output and a number have no script
    assert values["chrf2pp"][1] == 5  # the failed one is not an empty translation
    assert rows[5]["metrics"] == {}


def test_written_files_leave_out_failed_generations(tmp_path):
    task, items = samples(FROM)
    requests, _ = requests_of(task, items[:2])
    outputs = [generation(requests[0], None, flags="error: x"), generation(requests[1], "unha  liña ")]
    rows, _ = evaluate("translation", items[:2], requests, outputs, [])
    write(tmp_path, "translation", items, rows)
    assert lines(tmp_path / "ids.txt") == [items[1]["item_id"]]
    assert lines(tmp_path / "output.txt") == ["unha liña"]
    assert "comet-score -s source.txt -t output.txt -r reference.txt" in (tmp_path / "README.txt").read_text("utf-8")


def test_prompt_has_the_names_of_both_languages_in_the_language_of_the_output():
    task, items = samples(FROM)
    rows, metadata = requests_of(task, items)
    assert rows[0]["text"] == f"Inglés: {items[0]['context']}\nGalego:"
    assert (rows[0]["stop"], rows[0]["max_new_tokens"], metadata["output_language"]) == (["\n"], 256, "gl")
    rows, _ = requests_of(task, items, style="english")
    assert rows[0]["text"] == f"English: {items[0]['context']}\nGalician:"
    task, items = samples(INTO)
    rows, metadata = requests_of(task, items)
    assert rows[0]["text"] == f"Galician: {items[0]['context']}\nEnglish:"
    assert items[0]["target"].startswith("The rain falls")
    assert metadata["output_language"] == "en"


def test_few_shot_examples_are_complete_translations():
    task, items = samples(FROM)
    rows, metadata = requests_of(task, items, shots=2)
    by_id = {each["item_id"]: each for each in items}
    first, second = (by_id[name] for name in metadata["few_shot_examples"])
    expected = "".join(f"Inglés: {each['context']}\nGalego: {each['target']}\n\n" for each in (first, second))
    assert rows[0]["prefix"] == expected
    assert [turn["role"] for turn in rows[0]["messages"]] == ["user", "assistant"] * 2 + ["user"]
    assert rows[0]["messages"][1]["content"] == first["target"]


def test_bits_are_those_of_the_reference_after_the_same_prompt():
    task, items = samples(FROM)
    generated, _ = requests_of(task, items, shots=1)
    rows, _ = requests_of(task, items, "translation_bits", shots=1)
    by_id = {each["item_id"]: each for each in items}
    for request, row in zip(generated, rows, strict=True):
        full = row["prefix"] + row["text"]
        assert full[: row["span_start"]] == request["prefix"] + request["text"]
        assert full[row["span_start"] : row["span_end"]] == f" {by_id[row['item_id']]['target']}"
    scores = []
    for row in rows:
        start, end = row["span_start"], row["span_end"]
        offsets = [[start, start + 1], [start + 1, start + 4], [start + 4, end]]
        scores.append(score(row, [-np.log(2.0)] * 3, offsets=offsets))
    results, metrics = evaluate("translation_bits", items, rows, scores, [])
    n_bytes = sum(len(f" {by_id[row['item_id']]['target']}".encode()) for row in results)
    values = {row["metric"]: row["value"] for row in aggregate(results, metrics, seed=0, categories=False)}
    assert values["answer_bits"] == pytest.approx(3)
    assert values["answer_bits_per_byte"] == pytest.approx(3 * len(results) / n_bytes)
    assert [metric.name for metric in metrics if metric.headline] == ["answer_bits_per_byte"]


def test_script_of_the_output_is_expected_to_be_that_of_the_reference(monkeypatch):
    monkeypatch.setattr(language, "is_available", lambda: True)
    # below 40 letters, the script alone is compared
    target, source = "Киша пада полако.", "The rain falls slowly on the roofs of the town, and nobody leaves the house."
    extra = {"source_language": "en", "target_language": "sr-Cyrl"}
    rows = [{"item_id": "i1", "prediction": target, "metrics": {}}]
    meter = language.LanguageMeter("sr-Cyrl")
    meter.add(
        [item(context=source, target=target, extra=extra)], [{"item_id": "i1", "output": target}], rows, is_tool=False
    )
    assert (meter.answered, meter.gold, meter.undecided) == ({}, {}, 1)


def test_audit_reads_the_text_in_the_language_of_the_items():
    for name in (FROM, INTO):
        _, items = samples(name)
        own = [in_language(each, "gl") for each in items]
        assert own[0]["context"].startswith("A choiva cae")
        assert own[0]["extra"] == {}
        assert audit_between({"gl": own, "es": [in_language(each, "es") for each in samples(name, "es")[1]]}) == []


@pytest.mark.slow
def test_both_directions_reach_the_tables(tmp_path, monkeypatch, few_resamples):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    protocols = ["translation", "translation_bits"]
    entries = [{"task": name, "languages": ["gl"], "protocols": protocols, "limit": 4} for name in (FROM, INTO)]
    workspace = Workspace(tmp_path, entries)
    workspace.config["models"]["other"] = {"source": "./other", "dtype": "float32"}
    workspace.config["comparisons"] = [{"baseline": "tiny", "candidate": "other"}]
    workspace.write_config()
    with contextlib.chdir(tmp_path):
        assert Run(config.load(["config.yaml"]), has_versions=True).run_all(exports=True) == 0
    results = workspace.results()
    values = results[(results["category"] == "") & (results["model"] == "tiny")]
    evaluation = f"{FROM}.gl.translation.0shot"
    directory = tmp_path / "results" / "exports" / "tiny" / evaluation
    expected = CHRF2PP.corpus_score(lines(directory / "output.txt"), [lines(directory / "reference.txt")]).score
    shown = values[values["evaluation"] == evaluation].set_index("metric")
    assert shown.loc["chrf2pp", "value"] == expected
    assert {"bleu", "copied_source", "empty"} <= set(shown.index)
    assert "spbleu" not in shown.index
    bits = values[values["evaluation"] == f"{INTO}.gl.translation_bits.0shot"].set_index("metric")
    assert bits.loc["answer_bits_per_byte", "headline"]
    assert bits.loc["answer_bits_per_byte", "value"] > 0
    tokens = pd.read_parquet(tmp_path / "results" / "tiny" / "tokens.parquet").groupby("evaluation")["tokens"].sum()
    assert tokens[f"{FROM}.gl.translation_bits.0shot"] > 0
    assert tokens[f"{INTO}.gl.translation_bits.0shot"] == 0  # English texts say nothing about tokens of Galician
    notes = workspace.notes()
    found = notes[notes["note"].str.startswith("spbleu not computed: sentencepiece is not installed")]
    assert set(found["kind"]) == {"not applicable"}
    assert set(found["evaluation"]) == {evaluation, f"{INTO}.gl.translation.0shot"}
    comparisons = pd.read_csv(tmp_path / "results" / "summary" / "comparisons.csv")
    assert {"chrf2pp", "bleu", "answer_bits_per_byte"} <= set(comparisons["metric"])


LINES = "task: {}\nprotocols: [{}]\nitem_type: {}\ncolumns: {}\n{}"


def write_tasks(directory, **texts):
    for name, (protocol, item_type, columns, rest) in texts.items():
        text = LINES.format(name, protocol, item_type, columns, rest)
        (directory / f"{name}.yaml").write_text(text, "utf-8")
    return directory / f"{list(texts)[-1]}.yaml"


def test_languages_of_another_task_are_joined_and_translated(tmp_path):
    for code, texts in {"en": "One.\nTwo.\n", "gl": "Un.\nDous.\n", "an": "Un.\nDos.\n"}.items():
        (tmp_path / f"{code}.txt").write_text(texts, "utf-8")
    source = 'source: {file: "{language}.txt", format: lines}\n'
    texts = ("text", "text", "{context: text}", source + "languages: {en: {}, gl: {}, an: {}, en-GB: {}}\n")
    columns = "{id: _row, context: text, target: _joined.text, target_language: en}"
    path = write_tasks(
        tmp_path, mine=texts, back=("translation", "translation", columns, "languages_of: mine\njoin: en\n")
    )
    task = load_task(path)
    assert list(task["languages"]) == ["gl", "an"]  # not the joined language, nor its variants
    items, _ = load_items(task, "gl")
    assert [(each["context"], each["target"]) for each in items] == [("Un.", "One."), ("Dous.", "Two.")]
    assert items[0]["extra"] == {"source_language": "gl", "target_language": "en"}
    rows, _ = requests_of(task, items)
    assert rows[0]["text"] == "Galician: Un.\nEnglish:"
    with pytest.raises(ConfigError) as raised:  # English lines have no name of it
        requests_of(task, items, language="an")
    assert_states(raised.value, "en.yaml", '"an"', "names: {an: …}")


@pytest.mark.parametrize(
    ("columns", "rest", "message"),
    [
        ("{context: a, target: b}", "languages_of: miin\n", 'task file "miin.yaml" not found'),
        ("{context: a, target: b}", "", '"languages" is missing'),
        ("{context: a, target: b}", "languages_of: mine\n", "source_language or target_language other than gl"),
        ("{context: a}", "languages_of: mine\n", '"target" is missing'),
        ("{context: a, target: b, source_language: x y}", "languages_of: mine\n", "source_language"),
    ],
)
def test_invalid_translation_tasks_are_reported(tmp_path, columns, rest, message):
    texts = ("text", "text", "{context: text}", "languages: {gl: {source: {file: gl.txt, format: lines}}}\n")
    path = write_tasks(tmp_path, mine=texts, back=("translation", "translation", columns, rest))
    with pytest.raises(ConfigError) as raised:
        load_task(path)
    assert message in str(raised.value)
    assert "back.yaml" in str(raised.value)
