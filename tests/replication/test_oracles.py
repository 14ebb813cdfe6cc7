"""References of other tools: independent of the package, equal to each other where the tools agree, and as described."""

import ast
import doctest
import importlib
import math
from pathlib import Path

import oracles
import pytest
import torch
from oracles import grew_tse, palmx, serbian_cloze, simil_eval, similarity, surprisal
from support import similarity_encoders, tiny
from transformers import AutoModel, AutoTokenizer

DIRECTORY = Path(oracles.__file__).parent
NAMES = sorted(path.stem for path in DIRECTORY.glob("*.py") if path.stem != "__init__")


@pytest.fixture(scope="module")
def causal():
    loaded = tiny.load_model("gpt2")
    return loaded.model, loaded.tokenizer


@pytest.fixture(scope="module")
def masked():
    loaded = tiny.load_model("bert")
    return loaded.model, loaded.tokenizer


@pytest.mark.parametrize("name", NAMES)
def test_oracle_does_not_import_the_package(name):
    imported = set()
    for node in ast.walk(ast.parse((DIRECTORY / f"{name}.py").read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.split(".")[0])
    assert imported <= {"math", "re", "string", "typing", "numpy", "ot", "torch"}


@pytest.mark.parametrize("name", [name for name in NAMES if ">>> " in (DIRECTORY / f"{name}.py").read_text("utf-8")])
def test_examples_of_oracle(name):
    result = doctest.testmod(importlib.import_module(f"oracles.{name}"))
    assert (result.failed, result.attempted > 0) == (0, True)


def test_causal_logprobs_are_those_of_a_known_distribution():
    class Uniform(torch.nn.Module):
        def forward(self, input_ids):
            return type("Output", (), {"logits": torch.zeros(*input_ids.shape, 400)})

    tokenizer = tiny.tokenizer("bytes")
    text = "O gato dorme"
    scored = surprisal.causal(Uniform(), tokenizer, text)
    assert scored.logprobs == [None, *[pytest.approx(-math.log(400))] * (len(tokenizer(text)["input_ids"]) - 1)]
    with_bos = surprisal.causal(Uniform(), tokenizer, text, bos=tokenizer.bos_token_id)
    assert with_bos.loglik == pytest.approx(scored.loglik - math.log(400))


def test_corrected_word_adds_the_end_and_removes_the_start(causal):
    """Of a distribution in which a word begins with certainty at both ends, nothing is corrected."""
    tokenizer = causal[1]
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    begins = [name.startswith("Ġ") or i == tokenizer.eos_token_id for i, name in enumerate(names)]

    class WordsOnly(torch.nn.Module):
        def forward(self, input_ids):
            logits = torch.where(torch.tensor(begins), 0.0, -1e9)
            return type("Output", (), {"logits": logits.expand(*input_ids.shape, -1)})

    assert len(tokenizer(" the")["input_ids"]) == 1, "the test needs a word of one token"
    found = surprisal.corrected_word(WordsOnly(), tokenizer, "O gato", " the")
    assert found == pytest.approx(-math.log(sum(begins)))


def test_palmx_letters_are_spans_after_the_prompt(causal):
    row = {"question": "Which?", "A": "a dog", "B": "a cat", "C": "a horse", "D": "a bird"}
    text = palmx.prompt(row)
    assert text == "Which?\n\nA. a dog\nB. a cat\nC. a horse\nD. a bird\nالجواب:"
    expected = [surprisal.causal(*causal, f"{text} {letter}", len(text)).loglik for letter in "ABCD"]
    assert palmx.letter_logliks(*causal, row) == pytest.approx(expected, abs=1e-4)


def test_serbian_candidate_follows_the_prompt_without_space(causal):
    prompt, candidate = "Ana je __ knjigu.", "kupila"
    assert not serbian_cloze.boundary_moves(causal[1], prompt, candidate)
    expected = surprisal.causal(*causal, prompt + candidate, len(prompt)).loglik
    assert serbian_cloze.loglik(*causal, prompt, candidate) == pytest.approx(expected, abs=1e-4)


def test_serbian_candidate_joined_with_the_prompt_moves_the_boundary(causal):
    words = [("O gato", "dorme"), ("the c", "at"), ("on the r", "oof")]
    moved = [serbian_cloze.boundary_moves(causal[1], prompt, rest) for prompt, rest in words]
    assert moved[0] is False
    assert any(moved[1:])


def test_grew_tse_causal_form_is_a_span_of_the_sentence(causal):
    prompt, form = "The keys to the cabinet ", "are"
    text = f"{prompt}{form} on the table."
    start = len(prompt) - 1
    expected = surprisal.causal(*causal, text, start, start + 1 + len(form)).loglik
    assert grew_tse.causal_token(*causal, prompt, f" {form}") == pytest.approx(expected, abs=1e-4)
    bits = grew_tse.causal_sentence(*causal, text.replace(f" {form} ", " [MASK] "), form)
    assert bits * math.log(2) == pytest.approx(surprisal.causal(*causal, text).loglik, abs=1e-4)


def test_grew_tse_form_at_the_start_of_a_sentence_raises(causal):
    with pytest.raises(ValueError, match="no context"):
        grew_tse.causal_token(*causal, "", "The")


def test_grew_tse_masked_form_of_one_token_is_its_pseudo_log_likelihood(masked):
    form = next(word for word in ("the", "dog", "cat", "on") if len(masked[1].tokenize(word)) == 1)
    text = f"the cat sleeps {form} roof"
    start = text.index(form, 15)
    expected = surprisal.masked(*masked, text, start, start + len(form)).loglik
    found = grew_tse.masked_token(*masked, "the cat sleeps [MASK] roof", form, special_tokens=True)
    assert found == pytest.approx(expected, abs=1e-4)
    assert grew_tse.masked_token(*masked, "the cat sleeps [MASK] roof", form) != pytest.approx(expected, abs=1e-4)


def test_grew_tse_tie_is_incorrect():
    assert grew_tse.is_correct(-1.0, [-2.0, -1.5])
    assert not grew_tse.is_correct(-1.0, [-2.0, -1.0])


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ("RESPOSTA: foo bar\n", " foo bar"),
        ("RESPOSTA foo", "RESPOSTA foo"),
        ("RESPOSTA: a\n  RESPOSTA: b trunc", " b trunc"),
        ("RESPOST.*: \n\nfoo", ""),
        ("RESPOST.*: foo\nbar", " foo"),
        ("nothing", ""),
    ],
)
def test_simil_eval_answers(saved, expected):
    assert simil_eval.answer(saved, "RESPOST") == expected


def test_simil_eval_prompts_end_inside_a_label():
    row = {"question_stem": "Q", "choices": {"text": list("1234")}}
    indent = " " * 16
    options = "".join(f"{indent}OPCION {a}: {b}\n" for a, b in zip("ABCD", "1234", strict=True))
    assert simil_eval.openbookqa_prompt(row) == f"PREGUNTA: Q \n{options}{indent}RESPOST"
    english = {f"input_sentence_{i}": "abcd"[i - 1] for i in range(1, 5)}
    english |= {"sentence_quiz1": "E.", "sentence_quiz2": "F.", "story_id": "x"}
    galician = {f"InputSentence{i}": "abcd"[i - 1] for i in range(1, 5)}
    galician |= {"RandomFifthSentenceQuiz1": "E.", "RandomFifthSentenceQuiz2": "F."}
    expected = f"TEXTO: a b c d\n{indent}OPCION 1: E.\n{indent}OPCION 2: F.\n{indent}CONTINUAC"
    assert {simil_eval.xstorycloze_prompt(row) for row in (english, galician)} == {expected}


def test_similarities_of_equal_texts_are_one(tmp_path):
    similarity_encoders.bert(tmp_path)
    pair = AutoTokenizer.from_pretrained(tmp_path), AutoModel.from_pretrained(tmp_path)
    for function in (similarity.cosine, similarity.moverscore, similarity.moverscore_simil_eval):
        assert function(*pair, "a mazá é vermella", "a mazá é vermella") == pytest.approx(1.0, abs=1e-6)
        assert function(*pair, "a mazá é vermella", "os gatos dormen") < 1
    assert similarity.bertscore(*pair, "a mazá", "a mazá", layer=2) == pytest.approx(1.0, abs=1e-6)


def test_idf_counts_documents():
    weight = similarity.idf([{1, 2}, {1}, {3}])
    assert [weight(1), weight(2), weight(9)] == pytest.approx([math.log(4 / 3), math.log(2), math.log(4)])
