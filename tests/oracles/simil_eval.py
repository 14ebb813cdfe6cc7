"""Simil-Eval (Rodríguez et al. 2025, github.com/proxectonos/simil-eval): prompts, answer parser and surprisal metrics.

Prompts have Galician labels in every language, the indentation of the source code, and end inside a label.
"""

import re

INDENT = " " * 16


def openbookqa_prompt(row: dict) -> str:
    """Return the query of a row of OpenBookQA, with its options."""
    options = "".join(f"{INDENT}OPCION {'ABCD'[i]}: {text}\n" for i, text in enumerate(row["choices"]["text"]))
    return f"PREGUNTA: {row['question_stem']} \n{options}{INDENT}RESPOST"


def belebele_prompt(row: dict) -> str:
    """Return the query of a row of Belebele, with its options."""
    options = "".join(f"{INDENT}OPCION {i}: {row[f'mc_answer{i}']}\n" for i in range(1, 5))
    return f"CONTEXTO: {row['flores_passage']} \n{INDENT}PREGUNTA: {row['question']} \n{options}{INDENT}RESPOST"


def xstorycloze_prompt(row: dict) -> str:
    """Return the query of a row of XStoryCloze, with its options; columns in the case of the English or Galician data."""
    names = {name.lower().replace("_", ""): name for name in row}
    story = " ".join(row[names[f"inputsentence{i}"]] for i in range(1, 5))
    quiz = [next(row[name] for key, name in names.items() if key in (f"sentencequiz{i}", f"randomfifthsentencequiz{i}"))
            for i in (1, 2)]  # fmt: skip
    options = "".join(f"{INDENT}OPCION {i}: {text}\n" for i, text in enumerate(quiz, 1))
    return f"TEXTO: {story}\n{options}{INDENT}CONTINUAC"


def saved_text(prompt: str, completion: str, stem: str, *, chat: bool) -> str:
    """Return the text that is stored for a completion: all of it, or after a literal "STEM.*: " for a chat model."""
    return f"{stem}.*: {completion}" if chat else prompt + completion


def answer(saved: str, stem: str) -> str:
    """Return the answer in a stored text (`get_generated_answer`): on the last line that begins with the label's stem,
    what follows the last colon; "" without such a line.

    >>> answer("RESPOSTA: razón 3:1 total", "RESPOST")
    '1 total'
    """
    for line in reversed(saved.split("\n")):
        if re.match(rf"^\s*{stem}.*", line):
            return re.sub(rf"^{stem}.*:", "", line.strip())
    return ""


def difsur(good: list[float], bad: list[float]) -> float:
    """Return the relative difference of mean surprisals in percent, rounded as in Simil-Eval.

    >>> difsur([10.0, 20.0], [20.0, 40.0])
    50.0
    """
    mean_good, mean_bad = round(sum(good) / len(good), 4), round(sum(bad) / len(bad), 4)
    if mean_good == 0 and mean_bad == 0:
        return 0.0
    return round(100 * (mean_bad - mean_good) / max(mean_good, mean_bad), 4)


def last_word(text: str, tokens: list[str], surprisals: list[float]) -> float | None:
    """Return the surprisal of a text's last word: the largest of its tokens, None if no tokens at the end spell it.

    Tokens are those of the vocabulary, in which a byte-level tokenizer has no letters other than ASCII.

    >>> last_word("a letra da canción", ["Ġda", "Ġcan", "ci", "Ã³n"], [1.0, 2.0, 3.0, 4.0]) is None
    True
    >>> last_word("no tellado", ["no", "Ġtell", "ado"], [1.0, 2.0, 3.0])
    3.0
    """
    word = text.split()[-1]
    plain = [token.replace("▁", "").replace("Ġ", "") for token in tokens]
    for n in range(1, len(text.split()) + 1):
        if "".join(plain[-n:]) == word:
            return max(surprisals[-n:])
    return None
