"""Local rows of public datasets, in their columns, for tasks of lm_eval that are run without a network.

`write(DIRECTORY)` creates a directory per dataset, named like its repository on the Hub, where `datasets` finds it if
that is the working directory. The texts are the project's samples (`workflow/samples`); rows of languages without
samples have texts of another one. The values of a model on them mean nothing: only two tools are compared.
"""

import json
from pathlib import Path

from lm_eval_samples import SAMPLES, arithmetic, exam, questions, sample, sentences, stories

NLI = ("entailment", "neutral", "contradiction")
CATEGORIES = ("Business", "Humanities", "Medical", "Other", "STEM", "Social Sciences")
SUBJECTS = (
    *("biology", "business", "chemistry", "computer science", "economics", "engineering", "health"),
    *("history", "law", "math", "other", "philosophy", "physics", "psychology"),
)


def datasets(arabic_subjects: list[str]) -> dict[str, dict[str, dict[str, list[dict]]]]:
    """Return rows by repository, configuration and split; `arabic_subjects`: the configurations of ArabicMMLU."""
    found: dict[str, dict] = {}

    def add(repository: str, config: str = "default", **splits: list[dict]) -> None:
        found.setdefault(repository, {})[config] = splits

    gl, ca, es, en, pt = (questions(language) for language in ("gl", "ca", "es", "en", "pt"))
    cola = {language: sentences(language) for language in ("gl", "ca", "es", "en")}
    pairs = [(a, b) for (a, _), (b, _) in zip(cola["gl"], cola["gl"][1:], strict=False)]
    labels = [i % 3 for i in range(len(pairs))]

    rows = [{"sentence": text, "label": label} for text, label in cola["gl"]]
    add("proxectonos/galcola", train=rows[:8], validation=rows[8:16], test=rows[16:])
    for repository, language in (("nbel/CatCoLA", "ca"), ("nbel/EsCoLA", "es")):
        rows = [{"Sentence": text, "Label": label} for text, label in cola[language]]
        add(repository, train=rows[:12], validation=rows[12:])
    add("proxectonos/belebele_gl", train=sample("belebele/gl/train.jsonl"))
    for repository, config, source in (
        ("proxectonos/openbookqa_gl", "default", gl),
        ("allenai/openbookqa", "main", en),
    ):
        rows = [_labeled("question_stem", row) for row in source]
        add(repository, config, train=rows[8:], validation=rows[8:16], test=rows[:8])
    rows = [{"sentence1": a, "sentence2": b, "label": i % 2} for i, (a, b) in enumerate(pairs)]
    add("proxectonos/PAWS-gl", test=rows)
    rows = [{"Frase": a, "Paráfrase": b, "Avaliación": i % 2} for i, (a, b) in enumerate(pairs)]
    add("proxectonos/parafrases_gl", train=rows[:8], validation=rows[8:12], test=rows[12:])
    rows = [{**row, "AnswerRightEnding": int(row["AnswerRightEnding"])} for row in stories("gl")]
    add("proxectonos/xstorycloze_gl", train=rows[4:], test=rows[:4])
    rows = [{"sentence1": a, "sentence2": b, "gold_label": NLI[i]} for (a, b), i in zip(pairs, labels, strict=True)]
    add("proxectonos/xnli_gl", test=rows)
    rows = [{"premise": a, "hypothesis": b, "label": i} for (a, b), i in zip(pairs, labels, strict=True)]
    add("HiTZ/xnli-eu", "eu", train=rows[:8], validation=rows[8:14], test=rows[14:])
    for repository, config in (("facebook/xnli", "es"), ("xnli", "es"), ("projecte-aina/xnli-ca", "default")):
        add(repository, config, train=rows[:8], validation=rows[8:])
    add("gplsi/xnli_va", test=rows)
    similar = [{"premise": a, "hypothesis": b, "entailment_judgment": i % 2} for i, (a, b) in enumerate(pairs)]
    add("nilc-nlp/assin", train=similar[:8], validation=similar[8:12], test=similar[12:])
    add("masakhane/afrixnli", "yor", validation=rows[:10], test=rows[10:])

    for repository, source in (("proxectonos/truthfulqa_gl", gl), ("truthfulqa/truthful_qa", en)):
        rows = [_targets(row) for row in source[:8]]
        add(repository, "multiple_choice", validation=rows)
        names = ("question", "correct_answers", "incorrect_answers")
        add(repository, "generation", validation=[{name: row[name] for name in names} for row in rows])
    rows = arithmetic(16, "Uxía ten {} mazás e Brais dálle {}. Cantas ten?")
    train = [{**row, "question": f"Pregunta: {row['question']}"} for row in rows[8:]]
    add("proxectonos/mgsm_gl", train=train, test=[{**row, "answer": None} for row in rows[:8]])
    rows = arithmetic(16, "Ann has {} apples and Ben gives her {}. How many has she?")
    add("openai/gsm8k", "main", train=rows[8:], test=rows[:8])
    add("masakhane/afrimgsm", "yor", test=[{**row, "answer": None} for row in rows])

    lines = [
        dict(zip(("glg", "spa", "por"), texts, strict=True))
        for texts in zip(*([q["stem"] for q in source] for source in (gl, es, pt)), strict=True)
    ]
    rows = [{f"sentence_{language}_Latn": text for language, text in line.items()} for line in lines]
    add("facebook/flores", "all", dev=rows[:8], devtest=rows[8:])
    add(
        "gplsi/ES-VA_translation_test",
        test=[{"es": line["spa"], "va": row["stem"]} for line, row in zip(lines, ca, strict=False)],
    )

    for config in arabic_subjects:
        rows = [_arabic(row, config) for row in sample("palmx_culture/ar/dev.jsonl")]
        add("MBZUAI/ArabicMMLU", config, dev=rows[:5], test=rows[5:7])
    rows = [
        {**row, **_options(row["choices"]), "answer": row["letter"], "subject_category": category}
        for row in exam("es")
        for category in CATEGORIES
    ]
    add("CohereLabs/Global-MMLU-Lite", "es", dev=rows[:60], test=rows[60:])
    rows = [_prox(row, subject) for subject in SUBJECTS for row in exam("es", 6)]
    add("li-lab/MMLU-ProX-Lite", "es", validation=rows, test=[row for i, row in enumerate(rows) if i % 6 == 5])
    rows = [{**row, "answer": row["letter"], "choices": repr(row["choices"])} for row in exam("en")]
    add("masakhane/afrimmlu", "yor", validation=rows[:12], test=rows[12:])

    rows = [
        {"context": row["flores_passage"], "question": row["question"], "answers": {"text": [row["mc_answer1"]]}}
        for row in sample("belebele/gl/train.jsonl")
    ]
    add("google/xquad", "xquad.es", validation=rows)
    listed = [{**row, "answers": [{"text": row["answers"]["text"][0]}]} for row in rows]
    add("projecte-aina/xquad-ca", test=listed)
    add("facebook/belebele", "por_Latn", test=sample("belebele/gl/train.jsonl"))
    rows = [
        {"story": row["context"], "questions": [row["question"]], "answers": {"input_text": row["answers"]["text"]}}
        for row in rows
    ]
    add("projecte-aina/CoQCat", train=rows[:6], validation=rows[6:], test=rows[6:])
    add(
        "jumelet/multiblimp",
        "glg",
        train=[{k: row[k] for k in ("sen", "wrong_sen")} for row in sample("multiblimp/gl/train.tsv")],
    )
    add("nyu-mll/blimp", "causative", train=[{"sentence_good": a, "sentence_bad": b} for a, b in _minimal(cola["en"])])
    words = (SAMPLES / "galician_adapter" / "text.txt").read_text("utf-8").split(" ")
    pages = [" ".join(words[start:stop]) for start, stop in ((0, 900), (900, 1000), (1000, 1450), (1450, 1454))]
    add(
        "EleutherAI/wikitext_document_level",
        "wikitext-2-raw-v1",
        train=[{"page": pages[1]}],
        validation=[{"page": pages[1]}],
        test=[{"page": page} for page in pages],
    )
    rows = [{"text": f"{row['stem'].rstrip('?.')} {row['options'][row['gold']]}"} for row in en]
    add("EleutherAI/lambada_openai", test=rows)

    rows = [_labeled("question", row) for row in en]
    add("allenai/ai2_arc", "ARC-Challenge", train=rows[8:], validation=rows[8:16], test=rows[:8])
    rows = [
        {"goal": row["stem"], "sol1": row["options"][0], "sol2": row["options"][1], "label": i % 2}
        for i, row in enumerate(en)
    ]
    add("baber/piqa", train=rows[8:], validation=rows[:8])
    add("HiTZ/PIQA-eu", validation=rows)
    rows = [
        {
            "sentence": f"{row['stem'].rstrip('?')}: _ it is.",
            "option1": row["options"][0],
            "option2": row["options"][1],
            "answer": str(1 + i % 2),
        }
        for i, row in enumerate(en)
    ]
    add("allenai/winogrande", "winogrande_xl", train=rows[8:], validation=rows[:8])
    rows = [
        {
            "activity_label": "Nature",
            "ctx_a": row["stem"],
            "ctx_b": "it is",
            "endings": row["options"],
            "label": str(row["gold"]),
        }
        for row in en
    ]
    add("Rowan/hellaswag", train=rows[8:], validation=rows[:8])
    rows = [
        {"passage": row["stem"], "question": f"is it {row['options'][0]}", "label": i % 2} for i, row in enumerate(en)
    ]
    add("aps/super_glue", "boolq", train=rows[8:], validation=rows[:8])
    for repository, config, source in (
        ("aps/super_glue", "copa", en),
        ("cambridgeltl/xcopa", "it", pt),
        ("projecte-aina/COPA-ca", "default", ca),
        ("BSC-LT/COPA-es", "default", es),
        ("HiTZ/XCOPA-eu", "default", es),
    ):
        rows = [_alternatives(row, i) for i, row in enumerate(source)]
        add(repository, config, train=rows[8:], validation=rows[8:16], test=rows[:8])
    add(
        "HiTZ/EusTrivia",
        test=[{"question": row["stem"], "candidates": row["options"], "answer": row["gold"]} for row in es],
    )
    return found


def _alternatives(row: dict, i: int) -> dict:
    names = {"choice1": row["options"][0], "choice2": row["options"][1], "question": ("cause", "effect")[i % 2]}
    return {"premise": row["stem"], **names, "label": i // 2 % 2}


def _labeled(name: str, row: dict) -> dict:
    return {
        name: row["stem"],
        "choices": {"text": row["options"], "label": list("ABCD")},
        "answerKey": "ABCD"[row["gold"]],
    }


def _options(options: list[str]) -> dict:
    return {f"option_{letter}": option for letter, option in zip("abcd", options, strict=True)}


def _targets(row: dict) -> dict:
    """Return a question in the columns of TruthfulQA, the correct answers first."""
    correct, incorrect = [row["options"][row["gold"]]], [o for i, o in enumerate(row["options"]) if i != row["gold"]]
    targets = {"choices": correct + incorrect, "labels": [1] + [0] * len(incorrect)}
    answers = {"correct_answers": correct, "incorrect_answers": incorrect}
    return {"question": row["stem"], "mc1_targets": targets, "mc2_targets": targets, **answers}


def _arabic(row: dict, subject: str) -> dict:
    options = {f"Option {i + 1}": row["ABCD"[i]] if i < 4 else None for i in range(5)}
    return {"Level": None, "Country": "Jordan", "Subject": subject, "Context": None, "Question": row["question"],
            **options, "Answer Key": row["answer"]}  # fmt: skip


def _prox(row: dict, subject: str) -> dict:
    options = {f"option_{i}": row["choices"][i] if i < 4 else None for i in range(10)}
    thought = f"A: Let's think step by step. La respuesta es ({row['letter']})."
    return {
        "category": subject,
        "question": row["question"],
        **options,
        "answer": row["letter"],
        "cot_content": thought,
    }


def _minimal(rows: list[tuple[str, int]]) -> list[tuple[str, str]]:
    good, bad = ([text for text, label in rows if label == wanted] for wanted in (1, 0))
    return list(zip(good, bad, strict=False))


def write(directory: Path, arabic_subjects: list[str]) -> None:
    """Write all rows below `directory`."""
    for repository, configs in datasets(arabic_subjects).items():
        folder = directory / repository
        folder.mkdir(parents=True, exist_ok=True)
        entries = []
        for config, splits in configs.items():
            files = []
            for split, rows in splits.items():
                name = f"{config}.{split}.jsonl".replace(" ", "_")
                (folder / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
                files.append({"split": split, "path": name})
            entries.append({"config_name": config, "data_files": files})
        (folder / "README.md").write_text(f"---\n{json.dumps({'configs': entries})}\n---\n", "utf-8")
