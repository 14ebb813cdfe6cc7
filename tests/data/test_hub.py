"""Datasets in their original layouts, loaded with `huggingface_hub` and `datasets` from a local Hub server."""

import json
import socket

import pytest
import yaml
from support.hub_files import jsonl, parquet, question, task_file
from support.hub_server import Client
from support.messages import assert_states
from vernacular.core import hub_snapshot as snapshot
from vernacular.core.errors import DataError
from vernacular.data import hub as data_hub
from vernacular.data.load import WORKFLOW, load_items
from vernacular.data.tasks import load_task

TASKS = WORKFLOW / "tasks"


@pytest.fixture(scope="module")
def client(hub, tmp_path_factory):
    client = Client(hub, tmp_path_factory.mktemp("hf") / ".cache" / "huggingface")
    yield client
    client.close()


def card(*configs: tuple[str, dict], license="cc-by-4.0", **options) -> str:
    """Return a dataset card (README.md) with configurations and their files by split in its YAML metadata."""
    configurations = [
        {
            "config_name": name,
            "data_files": [{"split": split, "path": path} for split, path in files.items()],
            **options,
        }
        for name, files in configs
    ]
    return "---\n" + yaml.safe_dump({"license": license, "configs": configurations}) + "---\n# A set\n"


def to_tsv(*rows: dict) -> str:
    return "".join("\t".join(map(str, cells)) + "\n" for cells in [rows[0], *(row.values() for row in rows)])


def test_openbookqa_parquet_without_configurations_and_with_whitespace(hub, client):
    hub.add(
        "proxectonos/openbookqa_gl",
        {
            "README.md": "---\nlicense: cc-by-4.0\n---\n",
            "data/validation-00000-of-00001.parquet": parquet(question(9)),
            "data/test-00000-of-00001.parquet": parquet(question(0, answerKey=" A"), question(1, answerKey="B ")),
        },
    )
    rows, metadata = client.load(TASKS / "openbookqa.yaml", "gl")
    assert [(row["item_id"], row["few_shot"], row["gold"]) for row in rows] == [
        ("7-0", False, [0]),
        ("7-1", False, [1]),
        ("shot/7-9", True, [1]),
    ]
    assert metadata["source"]["license"] == "cc-by-4.0"
    assert metadata["source"]["revision"] == hub.repositories["proxectonos/openbookqa_gl"].refs["main"]
    [warning] = metadata["warnings"]
    assert_states(warning, "openbookqa (gl)", "expected 500", "got 2")


def test_openbookqa_in_the_original_nested_layout(hub, client):
    options = [{"text": "a marsh", "label": "A"}, {"text": "a desert", "label": "B"}]
    row = {"id": "1129", "question": {"stem": "There is fog around", "choices": options}, "answerKey": "B"}
    files = {"test": "main/test.jsonl", "validation": "main/validation.jsonl"}
    hub.add(
        "allenai/openbookqa",
        {
            "README.md": card(("main", files), license=["unknown"]),
            "main/test.jsonl": jsonl(row),
            "main/validation.jsonl": jsonl(row),
        },
    )
    rows, metadata = client.load(TASKS / "openbookqa.yaml", "en")
    assert rows[0]["question"] == "There is fog around"
    assert (rows[0]["choices"], rows[0]["gold"]) == (["a marsh", "a desert"], [1])
    assert metadata["source"]["license"] == "Apache-2.0"  # the card states "unknown"; the task file has the license


def test_belebele_downloads_one_language_and_converts_one_based_answers(hub, client):
    row = {"link": "https://x/1", "question_number": 1, "flores_passage": "P.", "question": "Q?", "dialect": "eng_Latn"}
    row |= {f"mc_answer{i}": f"answer {i}" for i in (1, 2, 3, 4)}
    files = {
        "data/eng_Latn.jsonl": jsonl(
            row | {"correct_answer_num": "4"}, row | {"question_number": 2, "correct_answer_num": 1}
        ),
        "data/glg_Latn.jsonl": jsonl(row | {"correct_answer_num": "2"}),
    }
    hub.add(
        "facebook/belebele",
        {"README.md": card(*((f[5:-6], {"test": f}) for f in files), license="cc-by-sa-4.0"), **files},
    )
    rows, metadata = client.load(TASKS / "belebele.yaml", "en")
    assert [(row["item_id"], row["gold"], row["cluster_id"]) for row in rows] == [
        ("https://x/1#1", [3], "https://x/1"),
        ("https://x/1#2", [0], "https://x/1"),
    ]
    assert metadata["source"]["files"] == ["data/eng_Latn.jsonl"]
    assert hub.download_count("glg_Latn.jsonl") == 0


VERITAS = {
    "id": "veritas_001",
    "question": "Q?",
    "best_answer": "certo",
    "correct_answers": "certo; tamén certo;",
    "incorrect_answers": "falso; certo; falso",
}


def test_veritasqa_with_languages_as_configurations(hub, client):
    repository = {"README.md": card(("gl", {"test": "gl/test.jsonl"})), "gl/test.jsonl": jsonl(VERITAS)}
    hub.add("projecte-aina/veritasQA", repository)
    rows, metadata = client.load(TASKS / "veritasqa.yaml", "gl")
    assert rows[0]["choices"] == ["certo", "tamén certo", "falso"]
    assert (rows[0]["gold"], rows[0]["target"]) == ([0, 1], "certo")
    assert metadata["rows"]["repaired"] == {
        "answers both correct and incorrect: used as correct": 1,
        "empty answers removed": 1,
        "repeated answers removed": 1,
    }
    assert metadata["source"]["layout"] == 1


def test_veritasqa_with_languages_as_splits_uses_the_second_source(hub, tmp_path):
    languages = {language: f"{language}.jsonl" for language in ("gl", "ca")}
    files = {path: jsonl(VERITAS | {"question": language}) for language, path in languages.items()}
    hub.add("projecte-aina/veritasQA", {"README.md": card(("default", languages)), **files})
    client = Client(hub, tmp_path)
    rows, metadata = client.load(TASKS / "veritasqa.yaml", "ca")
    client.close()
    assert rows[0]["question"] == "ca"
    assert (metadata["source"]["layout"], metadata["source"]["split"]) == (2, "ca")


def test_xstorycloze_with_capitalized_columns_and_literal_quotes(hub, client):
    row = {"InputStoryid": "s1"} | {f"InputSentence{i}": f"Frase {i}." for i in (1, 2, 3, 4)}
    row |= {"RandomFifthSentenceQuiz1": '"Non", dixo.', "RandomFifthSentenceQuiz2": "NA", "AnswerRightEnding": 2}
    files = {
        "train.tsv": to_tsv(row),
        "test.tsv": to_tsv(row, row | {"InputStoryid": "s2", "InputSentence1": 'A "cousa.'}),
    }
    hub.add(
        "proxectonos/xstorycloze_gl",
        {"README.md": card(("gl", {"train": "train.tsv", "test": "test.tsv"}), sep="\t"), **files},
    )
    rows, metadata = client.load(TASKS / "xstorycloze.yaml", "gl")
    assert rows[0]["context"] == "Frase 1. Frase 2. Frase 3. Frase 4."
    assert (rows[0]["choices"], rows[0]["gold"], rows[0]["question"]) == (['"Non", dixo.', "NA"], [1], "")
    assert rows[1]["context"].startswith('A "cousa.')
    assert metadata["rows"]["read"] == 2
    assert metadata["few_shot_examples"]["kept"] == 1


def test_xstorycloze_script_repository_is_read_from_raw_files(hub, client):
    row = {"story_id": "e1"} | {f"input_sentence_{i}": f"Sentence {i}." for i in (1, 2, 3, 4)}
    row |= {"sentence_quiz1": "Yes.", "sentence_quiz2": "No.", "answer_right_ending": 1}
    names = [f"spring2016.val.es.tsv.split_20_80_{split}.tsv" for split in ("train", "eval")]
    hub.add("juletxara/xstory_cloze", {"xstory_cloze.py": "raise SystemExit", **dict.fromkeys(names, to_tsv(row))})
    rows, metadata = client.load(TASKS / "xstorycloze.yaml", "es")
    assert (rows[0]["gold"], metadata["source"]["layout"]) == ([0], 2)
    assert metadata["source"]["files"] == sorted(names)
    assert hub.download_count("xstory_cloze.py") == 0


def test_cola_with_lowercase_and_capitalized_columns(hub, client):
    hub.add(
        "proxectonos/galcola",
        {
            "README.md": card(
                ("default", {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}), sep="\t"
            ),
            **dict.fromkeys(
                ("train.tsv", "dev.tsv", "test.tsv"),
                to_tsv({"paper_id": "p1", "source_type": "t", "condition": "a", "sentence": "Vai vir.", "label": 1}),
            ),
        },
    )
    hub.add(
        "nbel/EsCoLA",
        {
            "README.md": card(("default", {"train": "in.csv", "validation": "dev.csv"})),
            "in.csv": "ID,Source,Label,Sentence,Category,Split\n1,s,1,Uno.,3,train\n",
            "dev.csv": "ID,Source,Label,Sentence,Category,Split\n2,s,0,null,3,dev\n3,s,-1,Dos.,3,dev\n",
        },
    )
    gl, _ = client.load(TASKS / "cola.yaml", "gl")
    es, metadata = client.load(TASKS / "cola.yaml", "es")
    assert (gl[0]["context"], gl[0]["extra"], gl[0]["category"], gl[0]["choices"]) == (
        "Vai vir.",
        {"label": "1"},
        "t",
        [],
    )
    assert (es[0]["context"], es[0]["extra"], es[0]["category"]) == ("null", {"label": "0"}, "3")
    assert metadata["rows"]["dropped"] == {"label is neither 1 nor 0": 1}


def test_global_piqa_label_is_the_index_of_the_correct_solution(hub, client):
    row = {
        "prompt": "Para servir,",
        "solution0": "usa un prato.",
        "solution1": "usa un zapato.",
        "label": 0,
        "example_id": "g0",
    }
    names = ("glg_latn", "dev_glg_latn")
    hub.add(
        "mrlbenchmarks/global-piqa-nonparallel",
        {
            "README.md": card(*((name, {"test": f"data/nonparallel_{name}.tsv"}) for name in names), sep="\t"),
            **{f"data/nonparallel_{name}.tsv": to_tsv(row, row | {"label": 1, "example_id": "g1"}) for name in names},
        },
    )
    rows, metadata = client.load(TASKS / "global_piqa.yaml", "gl")
    assert [(row["item_id"], row["context"], row["gold"]) for row in rows] == [
        ("g0", "Para servir,", [0]),
        ("g1", "Para servir,", [1]),
    ]
    assert metadata["source"]["config"] == "glg_latn"


def test_calame_pt_drops_the_row_with_an_empty_last_word(hub, client):
    rows = [
        {"id": 717, "sentence": "Era uma", "last_word": "vez"},
        {"id": 718, "sentence": "O fim", "last_word": "      "},
    ]
    hub.add(
        "NOVA-vision-language/calame-pt",
        {"README.md": card(("all", {"train": "all.jsonl"})), "all.jsonl": jsonl(*rows)},
    )
    items, metadata = client.load(TASKS / "calame.yaml", "pt")
    assert [(item["item_id"], item["context"], item["target"]) for item in items] == [("717", "Era uma", "vez")]
    assert metadata["rows"]["dropped"] == {"empty target": 1}


def test_palmx_reads_test_and_draws_few_shot_examples_from_dev(hub, client):
    row = {"id": 1, "question": "؟", "A": "ا", "B": "ب", "C": "ت", "D": "ث", "answer": "b "}
    files = {"train": "train.parquet", "dev": "dev.parquet", "test": "test.parquet"}
    hub.add(
        "UBC-NLP/palmx_2025_subtask1_culture",
        {
            "README.md": card(("default", files)),
            **{path: parquet(row, row | {"id": 2, "answer": ""}) for path in files.values()},
        },
    )
    rows, metadata = client.load(TASKS / "palmx_culture.yaml", "ar")
    assert [(row["item_id"], row["gold"]) for row in rows] == [("1", [1]), ("2", []), ("shot/1", [1]), ("shot/2", [])]
    assert metadata["rows"]["repaired"] == {"answer withheld by the dataset": 1}
    dev, metadata = client.load(TASKS / "palmx_culture_dev.yaml", "ar")
    assert (len(dev), metadata["source"]["split"]) == (4, "dev")


def test_multiblimp_duplicate_pairs_have_distinct_ids_and_one_cluster(hub, client):
    row = {"sen": "is n't she?", "wrong_sen": "are n't she?", "phenomenon": "SV-P", "metadata": "{'a': 1}"}
    row |= {"grammatical_feature": "3", "ungrammatical_feature": "2"}
    hub.add(
        "jumelet/multiblimp",
        {"README.md": card(("eng", {"train": "eng/data.tsv"}), sep="\t"), "eng/data.tsv": to_tsv(row, row)},
    )
    rows, metadata = client.load(TASKS / "multiblimp.yaml", "en")
    assert (rows[0]["choices"], rows[0]["gold"], rows[0]["category"]) == (["is n't she?", "are n't she?"], [0], "SV-P")
    assert rows[1]["item_id"] == rows[0]["item_id"] + "~2"
    assert rows[0]["cluster_id"] == rows[1]["cluster_id"] == "is n't she?"
    assert metadata["rows"]["duplicates"] == 1


def test_blimp_configurations_match_a_pattern(hub, client):
    def pair(paradigm):
        return {
            "sentence_good": f"{paradigm} good",
            "sentence_bad": f"{paradigm} bad",
            "field": "syntax",
            "linguistics_term": "t",
            "UID": paradigm,
            "pair_id": 0,
        }

    names = ("adjunct_island", "wh_island")
    configs = [(name, {"train": f"{name}/train-*"}) for name in names]
    files = {f"{name}/train-00000-of-00001.parquet": parquet(pair(name)) for name in names}
    hub.add("nyu-mll/blimp", {"README.md": card(*configs), **files})
    rows, metadata = client.load(TASKS / "blimp.yaml", "en")
    assert [row["item_id"] for row in rows] == ["adjunct_island#0", "wh_island#0"]
    assert [row["category"] for row in rows] == list(names)
    assert metadata["source"]["config"] == "adjunct_island, wh_island"


def test_georgian_forms_are_found_by_column_prefix(hub, client):
    configs = ("transitive-nom", "transitive-erg")
    files = {
        "transitive-nom.csv": "sentence_id,match_id,masked_text,form_grammatical_nom,form_ungrammatical_dat,form_ungrammatical_erg\n"
        "w_1,1,[MASK] შედგება.,იგი,მას,მან\n",
        "transitive-erg.csv": "sentence_id,match_id,masked_text,form_grammatical_erg,form_ungrammatical_dat,form_ungrammatical_nom\n"
        'w_1,1,"მისმა [MASK], შექმნა.",სტრუქტურამ,სტრუქტურას,სტრუქტურა\nw_2,1,არა,ა,ბ,გ\n',
    }
    hub.add(
        "DanielGallagherIRE/georgian-case-alignment",
        {"README.md": card(*((name, {"train": f"{name}.csv"}) for name in configs)), **files},
    )
    rows, metadata = client.load(TASKS / "target_word.yaml", "ka")
    assert [row["item_id"] for row in rows] == ["transitive-nom#w_1#1", "transitive-erg#w_1#1"]
    assert rows[1]["choices"] == ["სტრუქტურამ", "სტრუქტურას", "სტრუქტურა"]
    assert rows[1]["extra"] == {
        "sentence_id": "w_1",
        "match_id": "1",
        "masked_text": "მისმა [MASK], შექმნა.",
        "prompt_text": "მისმა",
        "original_text": "მისმა სტრუქტურამ, შექმნა.",
        "form_columns": '["form_grammatical_erg", "form_ungrammatical_dat", "form_ungrammatical_nom"]',
    }
    assert rows[0]["cluster_id"] == rows[1]["cluster_id"] == "w_1"
    assert metadata["rows"]["dropped"] == {"no masked word": 1}


def test_truthfulqa_targets_have_correct_answers_first(hub, client):
    targets = {"choices": ["falso", "certo", "certo tamén"], "labels": [0, 1, 1]}
    row = {
        "id": 4,
        "question": "Q?",
        "mc1_targets": {"choices": ["certo", "falso"], "labels": [1, 0]},
        "mc2_targets": targets,
    }
    row |= {"best_answer": "certo.", "correct_answers": ["certo", ""], "incorrect_answers": ["falso"], "category": "c"}
    example = row | {"correct_answers": [], "incorrect_answers": [], "best_answer": "só certo"}
    files = {"validation": "data/gl/validation.json", "train": "data/gl/train.json"}
    hub.add(
        "HiTZ/truthfulqa-multi",
        {
            "README.md": card(("gl", files)),
            "data/gl/validation.json": json.dumps([row]),
            "data/gl/train.json": json.dumps([example]),
        },
    )
    generation, metadata = client.load(TASKS / "truthfulqa_multi.yaml", "gl")
    assert [(row["choices"], row["target"]) for row in generation] == [
        (["certo", "falso"], "certo."),
        (["só certo"], "só certo"),
    ]
    assert [n for reason, n in metadata["rows"]["repaired"].items() if reason.startswith("best answer")] == [1]
    mc2, _ = client.load(TASKS / "truthfulqa_multi_mc2.yaml", "gl")
    assert (mc2[0]["choices"], mc2[0]["gold"]) == (["certo", "certo tamén", "falso"], [0, 1])
    mc1, _ = client.load(TASKS / "truthfulqa_multi_mc1.yaml", "gl")
    assert (mc1[0]["choices"], mc1[0]["gold"]) == (["certo", "falso"], [0])


def test_revision_pins_the_rows(hub, client, tmp_path):
    repository = hub.add("me/pinned", {"test.jsonl": jsonl(question(0))})
    first = repository.refs["main"]
    second = repository.push({"test.jsonl": jsonl(question(0), question(1))})
    pinned, metadata = client.load(
        task_file(tmp_path, "pinned", {"hub": "me/pinned", "split": "test", "revision": first}), "gl"
    )
    assert (len(pinned), metadata["source"]["revision"]) == (1, first)
    newest, metadata = client.load(task_file(tmp_path, "newest", {"hub": "me/pinned", "split": "test"}), "gl")
    assert (len(newest), metadata["source"]["revision"]) == (2, second)


def test_single_file_by_hf_uri(hub, client, tmp_path):
    hub.add("me/raw", {"README.md": card(("x", {"train": "nothing/*"})), "deep/rows.jsonl": jsonl(question(0))})
    rows, metadata = client.load(task_file(tmp_path, "raw", {"file": "hf://datasets/me/raw/deep/rows.jsonl"}), "gl")
    assert (len(rows), metadata["source"]["files"]) == (1, ["deep/rows.jsonl"])


def test_hf_uri_with_revision():
    assert data_hub.from_uri("hf://datasets/me/raw@1f3c/deep/rows.jsonl") == {
        "hub": "me/raw",
        "files": {"data": "deep/rows.jsonl"},
        "split": "data",
        "revision": "1f3c",
    }


@pytest.mark.parametrize("uri", ["hf://datasets/me/raw", "hf://me/raw/rows.jsonl", "hf://buckets/me/raw/rows.jsonl"])
def test_other_hf_uri_raises_data_error(tmp_path, uri):
    with pytest.raises(DataError) as raised:
        load_items(load_task(task_file(tmp_path, "raw", {"file": uri})), "gl")
    assert_states(raised.value, uri, "hf://datasets/owner/name/file")


def test_second_run_works_offline(start_hub, tmp_path):
    server = start_hub()
    server.add(
        "me/cached",
        {
            "README.md": card(("a", {"test": "t*.jsonl"})),
            "t1.jsonl": jsonl(question(0)),
            "t2.jsonl": jsonl(question(1)),
        },
    )
    path = task_file(tmp_path, "cached", {"hub": "me/cached", "config": "a", "split": "test"})
    client = Client(server, tmp_path / "home")
    expected = client.load(path, "gl")
    client.close()
    server.stop()
    for environment in ({}, {"HF_HUB_OFFLINE": "1"}):
        offline_client = Client(server, tmp_path / "home", **environment)
        assert offline_client.load(path, "gl") == expected
        offline_client.close()


def test_offline_without_cache_error_gives_instructions(tmp_path):
    path = task_file(tmp_path, "unseen", {"hub": "me/unseen", "split": "test"})
    client = Client("http://127.0.0.1:9", tmp_path / "home")
    message = client.error_message(path, "gl")
    assert_states(message, "unseen (gl)", "me/unseen", "local cache", "ConnectError", "snakemake -c4 --until items")
    client.close()
    client = Client("http://127.0.0.1:9", tmp_path / "home", HF_HUB_OFFLINE="1")
    assert_states(client.error_message(path, "gl"), "unseen (gl)", "me/unseen", "local cache", "HF_HUB_OFFLINE")
    client.close()


def test_incomplete_snapshot_is_not_read_offline(start_hub, tmp_path):
    server = start_hub()
    server.add(
        "me/half",
        {
            "README.md": card(("a", {"test": "t*.jsonl"})),
            "t1.jsonl": jsonl(question(0)),
            "t2.jsonl": jsonl(question(1)),
        },
    )
    server.errors["/datasets/me/half/resolve/" + server.repositories["me/half"].refs["main"] + "/t2.jsonl"] = [404] * 99
    path = task_file(tmp_path, "half", {"hub": "me/half", "config": "a", "split": "test"})
    client = Client(server, tmp_path / "home")
    client.error_message(path, "gl")
    client.close()
    server.stop()
    client = Client(server, tmp_path / "home", HF_HUB_OFFLINE="1")
    assert_states(client.error_message(path, "gl"), "half (gl)", "me/half", "local cache")
    client.close()


def test_interrupted_download_is_resumed(hub, client, tmp_path):
    rows = [question(i) for i in range(2000)]
    repository = hub.add("me/drops", {"test.jsonl": jsonl(*rows)})
    address = f"/datasets/me/drops/resolve/{repository.refs['main']}/test.jsonl"
    hub.drops[address] = 2
    items, _ = client.load(task_file(tmp_path, "drops", {"hub": "me/drops", "split": "test"}), "gl")
    assert len(items) == 2000
    assert sum(method == "GET" and path == address for method, path, _ in hub.log) == 3


def test_temporary_server_error_is_retried(hub, client, tmp_path):
    repository = hub.add("me/busy", {"test.jsonl": jsonl(question(0))})
    hub.errors["/api/datasets/me/busy/revision/main"] = [503]
    hub.errors[f"/datasets/me/busy/resolve/{repository.refs['main']}/test.jsonl"] = [503]
    rows, _ = client.load(task_file(tmp_path, "busy", {"hub": "me/busy", "split": "test"}), "gl")
    assert len(rows) == 1


def test_unresponsive_server_raises_data_error(monkeypatch, low_limits):
    low_limits("core.hub_snapshot", TIMEOUT=0.1, FIRST_WAIT=0)
    monkeypatch.setattr(snapshot.constants, "HF_HUB_OFFLINE", False)
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts connections, but never responds
        monkeypatch.setattr(snapshot.constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(DataError) as raised:
            snapshot.snapshot(
                "me/silent",
                None,
                ["README.md"],
                repo_type="dataset",
                error_class=DataError,
                missing_file_error=DataError,
            )
    assert_states(raised.value, "me/silent", "cannot be reached", "ReadTimeout")


def test_private_dataset_requires_token_without_leaking_it(hub, tmp_path):
    hub.add("proxectonos/pt_OpenBookQA_test", {"test.jsonl": jsonl(question(0))}, private=True)
    client = Client(hub, tmp_path / "home")
    message = client.error_message(TASKS / "openbookqa.yaml", "pt")
    name = "proxectonos/pt_OpenBookQA_test"
    assert_states(message, "openbookqa (pt)", name, "not found", "private dataset", "HF_TOKEN")
    client.set_environment(HF_TOKEN="hf_wrongwrongwrong")
    assert "hf_wrong" not in client.error_message(TASKS / "openbookqa.yaml", "pt")
    client.set_environment(HF_TOKEN=hub.token)
    rows, metadata = client.load(TASKS / "openbookqa.yaml", "pt")
    client.close()
    assert len(rows) == 1
    assert hub.token not in json.dumps(metadata)
    assert hub.token not in client.stderr
    cached_files = [file for file in (tmp_path / "home").rglob("*") if file.is_file()]
    assert cached_files
    assert not any(hub.token.encode() in file.read_bytes() for file in cached_files)


def test_invalid_token_is_not_leaked(hub, tmp_path):
    hub.add("me/secret", {"test.jsonl": jsonl(question(0))}, private=True)
    client = Client(hub, tmp_path / "home", HF_TOKEN="hf_ñecret€")
    message = client.error_message(task_file(tmp_path, "secret", {"hub": "me/secret", "split": "test"}), "gl")
    client.close()
    assert "ecret€" not in message + client.stderr
    assert "HF_TOKEN" in message


def test_token_is_not_sent_to_another_server(hub, tmp_path):
    hub.web_files["/files/rows.jsonl"] = jsonl(question(0)).encode()
    client = Client(hub, tmp_path / "home", HF_TOKEN=hub.token)
    client.load(task_file(tmp_path, "web", {"url": f"{hub.address}/files/rows.jsonl"}), "gl")
    client.close()
    assert [token for _, path, token in hub.log if path == "/files/rows.jsonl"] == [None]


def test_gated_dataset_error_gives_its_page(hub, client, tmp_path):
    hub.add("me/gated", {"README.md": "", "test.jsonl": jsonl(question(0))}, gated=True)
    message = client.error_message(task_file(tmp_path, "gated", {"hub": "me/gated", "split": "test"}), "gl")
    page = f"{hub.address}/datasets/me/gated"
    assert_states(message, "gated (gl)", "me/gated", "gated", page, "HF_TOKEN", "hf auth login")


def test_token_without_access_and_expired_token(hub, tmp_path):
    hub.add("me/terms", {"README.md": "", "test.jsonl": jsonl(question(0))}, gated=True)
    path = task_file(tmp_path, "terms", {"hub": "me/terms", "split": "test"})
    client = Client(hub, tmp_path / "home", HF_TOKEN="hf_mine")
    page = f"{hub.address}/datasets/me/terms"
    assert_states(client.error_message(path, "gl"), "terms (gl)", "me/terms", "gated", page)
    client.set_environment(HF_TOKEN="hf_expired")
    assert_states(client.error_message(path, "gl"), "terms (gl)", "me/terms", "HTTP 401", "HF_TOKEN", "valid")
    client.close()


def test_dev_files_without_card_are_the_dev_split(hub, client, tmp_path):
    hub.add("me/dev", {f"{split}.csv": "id,q,a,b\n1,q,x,y\n" for split in ("train", "dev", "test")})
    columns = "{id: id, question: q, choices: [a, b]}"
    _, metadata = client.load(task_file(tmp_path, "dev", {"hub": "me/dev", "split": "dev"}, columns=columns), "gl")
    assert metadata["source"]["files"] == ["dev.csv"]


def test_configuration_with_data_dir(hub, client, tmp_path):
    configurations = [{"config_name": name, "data_dir": name} for name in ("gl", "pt")]
    card_text = "---\n" + yaml.safe_dump({"configs": configurations}) + "---\n"
    files = {
        f"{name}/{split}.jsonl": jsonl(question(0, id=name)) for name in ("gl", "pt") for split in ("train", "test")
    }
    hub.add("me/folders", {"README.md": card_text, **files})
    rows, metadata = client.load(
        task_file(tmp_path, "folders", {"hub": "me/folders", "config": "pt", "split": "test"}), "gl"
    )
    assert (rows[0]["item_id"], metadata["source"]["files"]) == ("pt", ["pt/test.jsonl"])


@pytest.mark.parametrize(
    ("name", "source", "parts"),
    [
        ("missing", {"hub": "me/missing", "split": "test"}, ("me/missing", "not found", "private")),
        (
            "branch",
            {"hub": "me/there", "split": "test", "revision": "old"},
            ("me/there", 'revision "old"', "not found"),
        ),
        (
            "config",
            {"hub": "me/there", "split": "test", "config": "glg_lat"},
            ("me/there", 'configuration "glg_lat"', '"glg_latn"'),
        ),
        (
            "split",
            {"hub": "me/there", "split": "tset"},
            ("me/there", "configuration glg_latn", 'split "tset"', '"test"'),
        ),
        (
            "files",
            {"hub": "me/there", "split": "test", "files": {"test": "gone.csv"}},
            ("me/there", "not found", "gone.csv"),
        ),
        ("script", {"hub": "me/script", "split": "test"}, ("me/script", "data files", "not found")),
        ("columns", {"hub": "me/other", "split": "test"}, ("me/other", 'column "question_stem"', "not found")),
    ],
)
def test_missing_or_incompatible_dataset_raises_data_error(hub, client, tmp_path, name, source, parts):
    hub.add("me/there", {"README.md": card(("glg_latn", {"test": "t.jsonl"})), "t.jsonl": jsonl(question(0))})
    hub.add("me/script", {"script.py": "raise SystemExit"})
    hub.add("me/other", {"test.csv": "id,stem,choices,answerKey\n1,2,3,4\n"})
    message = client.error_message(task_file(tmp_path, name, source), "gl")
    assert_states(message, f"{name} (gl)", *parts)


def test_codes_of_languages_select_files_and_configurations(hub, client):
    row = {"index_id": 3, "category": "travel", "text": "O tren sae."}
    hub.add(
        "Davlan/sib200",
        {
            "sib200.py": "raise SystemExit",
            "data/glg_Latn/test.tsv": to_tsv(row),
            "data/glg_Latn/dev.tsv": to_tsv(row | {"text": "O barco sae."}),
            "data/ast_Latn/test.tsv": to_tsv(row),
        },
    )
    rows, _ = client.load(TASKS / "sib200.yaml", "gl")
    assert [(row["item_id"], row["context"]) for row in rows] == [("3", "O tren sae."), ("shot/3", "O barco sae.")]
    exam = {"id": 1, "question": "Zer?", "candidates": ["a", "b"], "answer": 1}
    configs = {name: {"test": f"{name}.jsonl"} for name in ("eu_a", "eu_b", "es_a")}
    files = {f"{name}.jsonl": jsonl(exam) for name in configs}
    hub.add("HiTZ/EusExams", {"README.md": card(*configs.items()), **files})
    rows, _ = client.load(TASKS / "eus_exams.yaml", "eu")
    assert [row["category"] for row in rows] == ["eu_a", "eu_b"]


def test_mgsm_has_no_header(hub, client):
    hub.add("juletxara/mgsm", {"mgsm.py": "raise SystemExit", "mgsm_sw.tsv": "Mbili na tatu?\t5\nSita?\t1,006\n"})
    rows, metadata = client.load(TASKS / "mgsm.yaml", "sw")
    assert [(row["item_id"], row["question"], row["target"]) for row in rows] == [
        ("0", "Mbili na tatu?", "5"),
        ("1", "Sita?", "1,006"),
    ]
    assert metadata["rows"]["dropped"] == {}
