"""Task files and rows of this project in the formats of lm-eval, for tests against that tool.

`write(tasks, rows)` writes them, and `tests/workflow/test_lm_eval_equality.py` runs them with both tools.
"""

import json
import subprocess
import textwrap
from pathlib import Path

QUIZ = [
    ("O río de Lugo é", ["o Miño", "o Sil grande", "o Ulla", "o Eo"], "A"),
    ("A cadela", ["canta", "ladra moito", "voa", "le"], "B"),
    ("كم عدد الأيام؟", ["سبعة", "ثمانية أيام", "تسعة", "عشرة"], "A"),
    ("Cae a choiva 🌧️ e", ["queima", "molla as rúas", "seca", "arde"], "B"),
    ("O gato dorme no", ["río", "mar fondo", "tellado", "sol"], "C"),
    ("O gato dorme no", ["río", "mar fondo", "tellado", "sol"], "C"),
    ("Dous e dous son", ["un", "catro", "dez", "cen mil"], "B"),
    ("O pan faise con", ["fariña", "area", "pedras brancas", "fume"], "A"),
]
PAIRS = [
    ("O gato dorme no tellado.", "O gato dormen no tellado."),
    ("As cadelas ladran na rúa.", "As cadelas ladra na rúa."),
    ("A choiva cae amodo.", "A choiva caen amodo."),
    ("A choiva cae amodo.", "A choiva caen amodo."),
    ("Nobody has seen them.", "Nobody have seen them."),
    ("Jutros smo otišli.", "Jutros smo otišao."),
]
NLI = [
    ("O gato dorme .", "O animal descansa", 0),
    ("Chove na vila .", "Fai sol", 2),
    ("A nena le un libro .", "A nena está na casa", 1),
    ("", "Isto non ten premisa", 1),
    ("Os nenos cantan ( moito ) .", "Hai música", 0),
]
LAST = [
    ("O gato dorme no tellado e a cadela ladra na", "rúa"),
    ("A choiva cae amodo sobre a", "vila"),
    ("The keys to the cabinet are on the", "table"),
    ("Aquest matí hem anat al mercat i hem comprat", "pomes"),
    ("دღეს", "დილით"),
]

# name -> (content of the YAML file; rows by split)
TASKS: dict[str, tuple[str, dict[str, list[dict]]]] = {
    "letters": (
        r"""
        include: _letters_template_yaml
        task: letters
        dataset_kwargs: {data_files: {test: letters.test.jsonl}}
        fewshot_split: test
        test_split: test
        """,
        {"test": [{"passage": "Un texto curto.", "question": f" {q} ", **{f"answer{n + 1}": o for n, o in enumerate(options)},
                   "right": str("ABCD".index(a) + 1)} for q, options, a in QUIZ]},
    ),
    "texts": (
        r"""
        task: texts
        dataset_path: json
        dataset_kwargs: {data_files: {train: texts.train.jsonl, validation: texts.validation.jsonl}, trust_remote_code: true}
        output_type: multiple_choice
        training_split: train
        validation_split: validation
        test_split: null
        doc_to_text: stem
        doc_to_target: "{{choices.label.index(key.lstrip())}}"
        doc_to_choice: "{{choices.text}}"
        should_decontaminate: true
        doc_to_decontamination_query: stem
        metric_list:
          - {metric: acc, aggregation: mean, higher_is_better: true}
          - {metric: acc_norm, aggregation: mean, higher_is_better: true}
          - {metric: acc_bytes, aggregation: mean, higher_is_better: true}
        metadata: {version: 1.0}
        """,
        {split: [{"stem": q, "choices": {"text": options, "label": list("ABCD")}, "key": f" {a}"} for q, options, a in rows]
         for split, rows in (("train", QUIZ[::-1]), ("validation", QUIZ[:6]))},
    ),
    "pairs": (
        r"""
        include: _pairs_template_yaml
        dataset_kwargs: {data_files: pairs.train.jsonl}
        task: pairs
        """,
        {"train": [{"good": good, "bad": bad} for good, bad in PAIRS]},
    ),
    "glued": (
        r"""
        task: glued
        dataset_path: json
        dataset_kwargs: {data_files: {test: glued.test.jsonl}}
        output_type: multiple_choice
        test_split: test
        process_docs: !function glued_functions.process_docs
        doc_to_text: ''
        doc_to_target: label
        doc_to_choice: '{{[one+", verdadeiro? Si, "+other, one+", verdadeiro? Ademais, "+other,
          one+", verdadeiro? Non, "+other]}}'
        target_delimiter: ''
        metric_list:
          - {metric: acc, aggregation: mean, higher_is_better: true}
          - {metric: acc_norm, aggregation: mean, higher_is_better: true}
        """,
        {"test": [{"one": premise, "other": hypothesis, "label": label} for premise, hypothesis, label in NLI]},
    ),
    "contexts": (
        r"""
        task: contexts
        dataset_path: json
        dataset_kwargs: {data_files: {train: contexts.train.jsonl}}
        output_type: multiple_choice
        training_split: train
        validation_split: train
        doc_to_text: right
        doc_to_target: "{{ending}}"
        doc_to_choice: "{{[one, other]}}"
        metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
        """,
        {"train": [{"one": f"{q} {options[0]}", "other": f"{q} {options[1]}", "ending": "e xa está.", "right": n % 2}
                   for n, (q, options, _) in enumerate(QUIZ[:5])]},
    ),
    "several": (
        r"""
        task: several
        dataset_path: json
        dataset_kwargs: {data_files: {test: several.test.jsonl, train: several.train.jsonl}}
        output_type: multiple_choice
        training_split: train
        test_split: test
        fewshot_split: train
        description: "Estas son preguntas de {{topic}}.\n\n"
        doc_to_text: "P: {{question}}\nR:\n"
        doc_to_target: right
        doc_to_choice: options
        fewshot_delimiter: "\n##\n"
        fewshot_config: {doc_to_text: "Pregunta: {{question}}", doc_to_target: "{{options[right[0]]}}", target_delimiter: " = "}
        metric_list:
          - {metric: acc, aggregation: mean, higher_is_better: true}
          - {metric: acc_norm, aggregation: mean, higher_is_better: true}
        """,
        {split: [{"question": q, "options": options, "right": ["ABCD".index(a), 3], "topic": "todo"} for q, options, a in rows]
         for split, rows in (("test", QUIZ[:6]), ("train", QUIZ[2:]))},
    ),
    "mutual": (
        r"""
        task: mutual
        dataset_path: json
        dataset_kwargs: {data_files: {test: texts.validation.jsonl}}
        output_type: multiple_choice
        test_split: test
        fewshot_split: test
        fewshot_config: {sampler: first_n}
        doc_to_text: "{{stem|regex_replace('[aeiou]', '_')}}"
        doc_to_target: "{{choices.text['ABCD'.index(key.strip())]}}"
        doc_to_choice: "{{choices.text}}"
        gen_prefix: "Resposta:"
        metric_list:
          - {metric: acc, aggregation: mean, higher_is_better: true}
          - {metric: acc_mutual_info, aggregation: mean, higher_is_better: true}
        """,
        {},
    ),
    "truth": (
        r"""
        task: truth
        dataset_path: json
        dataset_kwargs: {data_files: {validation: truth.validation.jsonl}}
        output_type: multiple_choice
        validation_split: validation
        num_fewshot: 0
        doc_to_text: "{% set start = 'Q: Que?\nA: Nada.\n\n' %}{{start + 'Q: ' + question + '\nA:'}}"
        doc_to_target: 0
        doc_to_choice: "{{mc2_targets.choices}}"
        process_results: !function glued_functions.process_results_mc2
        metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
        """,
        {"validation": [{"question": q, "mc2_targets": {"choices": options, "labels": [1, 1, 0, 0] if n % 2 else [1, 0, 0, 0]}}
                        for n, (q, options, _) in enumerate(QUIZ[:6])]},
    ),
    "last": (
        r"""
        task: last
        dataset_path: json
        dataset_kwargs: {data_files: {test: last.test.jsonl}}
        output_type: loglikelihood
        test_split: test
        doc_to_text: "{{text}}"
        doc_to_target: "{{' '+word}}"
        metric_list:
          - {metric: perplexity, aggregation: perplexity, higher_is_better: false}
          - {metric: acc, aggregation: mean, higher_is_better: true}
        """,
        {"test": [{"text": text, "word": word} for text, word in LAST]},
    ),
    "written": (
        r"""
        task: written
        dataset_path: csv
        dataset_kwargs: {data_files: {train: written.train.csv, test: written.test.csv}}
        output_type: generate_until
        training_split: train
        test_split: test
        doc_to_text: "{% if answer != None %}Pregunta: {{question}}\nResposta: {% else %}{{question}}{% endif %}"
        doc_to_target: '{{answer|string}}'
        target_delimiter: ""
        generation_kwargs: {do_sample: false, until: ["Pregunta:", "a"], max_gen_toks: 6}
        filter_list:
          - name: remove_whitespace
            filter: [{function: remove_whitespace}, {function: take_first}]
        metric_list:
          - {metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true, ignore_punctuation: true}
        """,
        {},
    ),
    "filters": (
        r"""
        task: filters
        dataset_path: csv
        dataset_kwargs: {data_files: {train: written.train.csv, test: written.test.csv}}
        output_type: generate_until
        training_split: train
        test_split: test
        doc_to_text: "{{question}} ="
        doc_to_target: "{{answer}}"
        generation_kwargs: {do_sample: false, until: ["\n"], max_gen_toks: 8}
        filter_list:
          - {name: strict, filter: [{function: regex, regex_pattern: "^\\s*(\\d)"}, {function: take_first}]}
          - {name: flexible, filter: [{function: regex, group_select: -1, regex_pattern: "(\\w+)"}, {function: take_first}]}
        metric_list:
          - {metric: exact_match, aggregation: mean, higher_is_better: true}
          - {metric: chrf, aggregation: chrf, higher_is_better: true}
        """,
        {},
    ),
    "rolling": (
        r"""
        task: rolling
        dataset_path: json
        dataset_kwargs: {data_files: {test: rolling.test.jsonl}}
        output_type: loglikelihood_rolling
        test_split: test
        doc_to_text: ""
        doc_to_target: "{{page}}"
        metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
        """,
        {"test": [{"page": "O gato dorme no tellado e a cadela ladra na rúa. " * n} for n in (1, 3, 70)]},
    ),
    "judged": (
        r"""
        task: judged
        dataset_path: json
        dataset_kwargs: {data_files: {test: judged.test.jsonl}}
        output_type: multiple_choice
        test_split: test
        doc_to_text: "{{text}}\nCorrecto?"
        doc_to_choice: ["Non", "Si"]
        doc_to_target: label
        metric_list: [{metric: acc}, {metric: mcc}, {metric: f1}]
        """,
        {"test": [{"text": text, "label": n % 2} for n, pair in enumerate(PAIRS) for text in pair]},
    ),
    "weighted": (
        r"""
        group: weighted
        task: [letters, texts, pairs]
        aggregate_metric_list: [{metric: acc, weight_by_size: true}]
        """,
        {},
    ),
    "unweighted": (
        r"""
        group: unweighted
        task:
          - group: inner
            task: [letters, {task: texts, num_fewshot: 2}]
            aggregate_metric_list: [{metric: acc, weight_by_size: true}]
          - pairs
        aggregate_metric_list: [{metric: acc, weight_by_size: false}]
        """,
        {},
    ),
    "mixed": (
        r"""
        group: mixed
        task: [last, written, quizzes]
        aggregate_metric_list: [{metric: acc, weight_by_size: true}]
        """,
        {},
    ),
    # four prompts of a task, the last with other rows
    **{f"asked_prompt_{number}": (
        rf"""
        include: _letters_template_yaml
        task: asked_prompt_{number}
        tag: asked_tasks
        dataset_kwargs: {{data_files: {{test: {"asked_prompt_4" if number == 4 else "letters"}.test.jsonl}}}}
        test_split: test
        doc_to_text: "{wording} {{{{question.strip()}}}}\nA: {{{{answer1}}}}\nB: {{{{answer2}}}}\nC: {{{{answer3}}}}\nD: {{{{answer4}}}}\n{cue}"
        """,
        {"test": [{"question": q, **{f"answer{n + 1}": o for n, o in enumerate(options)}, "right": str("ABCD".index(a) + 1)}
                  for q, options, a in QUIZ[:5]]} if number == 4 else {},
    ) for number, (wording, cue) in enumerate([("Q:", "Answer:"), ("Escolle.", "Letra:"), ("Di:", "É a"), ("P:", "R:")], 1)},
}  # fmt: skip

SUPPORT_FILES = {
    "_letters_template_yaml": r"""
        dataset_path: json
        fewshot_config: {sampler: first_n}
        output_type: multiple_choice
        tag: quizzes
        doc_to_text: "P: {{passage}}\nQ: {{question.strip()}}\nA: {{answer1}}\nB: {{answer2}}\nC: {{answer3}}\nD: {{answer4}}\nAnswer:"
        doc_to_choice: ["A", "B", "C", "D"]
        doc_to_target: "{{['1', '2', '3', '4'].index(right)}}"
        metric_list:
          - {metric: acc, aggregation: mean, higher_is_better: true}
          - {metric: acc_norm, aggregation: mean, higher_is_better: true}
        """,
    "_pairs_template_yaml": r"""
        dataset_path: json
        output_type: multiple_choice
        validation_split: train
        doc_to_text: ""
        doc_to_target: 0
        doc_to_choice: "{{[good, bad]}}"
        num_fewshot: 0
        metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
        """,
    "glued_functions.py": """
        import numpy as np


        def process_docs(dataset):
            def tidy(doc):
                doc["one"] = doc["one"].replace(" .", "").strip()
                return doc

            return dataset.filter(lambda doc: doc["one"] not in [None, ""]).map(tidy)


        def process_results_mc2(doc, results):
            lls, _ = zip(*results)
            split = list(doc["mc2_targets"]["labels"]).index(0)
            true, false = np.exp(np.array(lls[:split])), np.exp(np.array(lls[split:]))
            return {"acc": sum(true / (sum(true) + sum(false)))}
        """,
    "written.train.csv": "question,answer\nDous e dous,4\nTres e un,4\nUn e un,2\nCatro e un,5\n",
    "written.test.csv": "question,answer\nCinco e un,6\nDez e un,11\nOito e un,9\n",
}  # fmt: skip


def write(tasks: Path, rows: Path) -> None:
    """Write the task files and their modules to `tasks`, and the data files, relative to which they are read, to `rows`."""
    tasks.mkdir(parents=True, exist_ok=True)
    for name, text in SUPPORT_FILES.items():
        directory = rows if name.endswith(".csv") else tasks
        (directory / name).write_text(_flush(text), "utf-8")
    for name, (content, splits) in TASKS.items():
        (tasks / f"{name}.yaml").write_text(_flush(content), "utf-8")
        for split, split_rows in splits.items():
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in split_rows)
            (rows / f"{name}.{split}.jsonl").write_text(lines, "utf-8")


def _flush(text: str) -> str:
    return textwrap.dedent(text.lstrip("\n"))


def extend_environment(python: Path, directory: Path) -> tuple[Path, Path]:
    """Make an environment in `directory` that also has the packages of another; return (its own, the other's) packages."""
    subprocess.run([str(python), "-m", "venv", "--without-pip", str(directory)], check=True)
    (shared,) = python.parents[1].glob("lib/python*/site-packages")
    (own,) = directory.glob("lib/python*/site-packages")
    (own / "shared.pth").write_text(f"{shared}\n")
    return own, shared
