"""Compare included task files with lm_eval's tasks on the same rows: options, answers, scored texts, and values.

    python bench/task_files.py --lm-eval-python .lm-eval/bin/python
    python bench/task_files.py --model DIRECTORY --reference .bench/bin/python

For each case of `tests/support/catalogue_rows.py` with a task of lm_eval, both tools read the same local rows. Compared
are the number of items, the correct option and, where lm_eval shows the texts of the options and not letters, their
texts. Where the task is scored as minimal pairs, the context and the continuation of every request must be equal to
lm_eval's too.

With `--model`, a model is run by `lm_eval --model hf`, and here by lm_eval's task (`lm_eval: NAME`) and by the task
file, the latter where its prompt is lm_eval's, as it is or as a variant with lm_eval's words (WORDS). The
log-likelihood of each option, the decisions, the accuracies and the generated texts are compared.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

# layout and text of lm_eval's prompts that a variant can have: lettered lines are "A. …", and the last line is the cue
WORDS = {
    "nrk_quiz_qa_nno_p0": ("question", "Spørsmål: {question}\n{options}\n\nSvar:"),
    "norcommonsenseqa_nob_p0": ("question", "Spørsmål: {question}\n{options}\n\nSvar:"),
    "nortruthfulqa_mc_nob_p0": ("question", "Spørsmål: {question}\n{options}\n\nSvar:"),
    "arc_ca_easy": ("question", "Pregunta: {question}\n{options}\nResposta:"),
    "siqa_ca": ("passage", "Pregunta: {context} {question}\n{options}\nResposta:"),
    "piqa_eu": ("question", "Galdera: {question}\n{options}\nErantzuna:"),
    "global_mmlu_ar_other": ("letters_question", "{question}\n{options}\nAnswer:"),
    "afrimgsm_hau_prompt_1": ("question", "Question: {question}\n{options}\nAnswer:"),
}
VARIANT = "their_words"


def documents(names: list[str]) -> None:
    """Print [text, options, correct option or target] of each document of lm_eval's tasks, as JSON."""
    import logging

    from lm_eval.tasks import TaskManager

    logging.disable(logging.WARNING)
    manager, found = TaskManager(), {}
    for name in names:
        task = manager.load([name])["tasks"][name]
        found[name] = []
        for doc in task.eval_docs:
            options = task.doc_to_choice(doc) if task.config.output_type == "multiple_choice" else None
            found[name].append([task.doc_to_text(doc), options, task.doc_to_target(doc)])
    print(json.dumps(found, ensure_ascii=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lm-eval-python", default=str(ROOT / ".lm-eval" / "bin" / "python"))
    parser.add_argument("--tasks", help="names of lm_eval separated by commas; by default, all")
    parser.add_argument("--model", type=lambda path: Path(path).resolve(), help="compare its values, too")
    parser.add_argument("--reference", help="Python of an environment with lm_eval and torch, for --model")
    args = parser.parse_args()
    python = str(Path(args.lm_eval_python).absolute())

    from support.catalogue_rows import CASES

    names = args.tasks.split(",") if args.tasks else [case.lm_eval for case in CASES]
    run(args, {case.lm_eval: case for case in CASES if case.lm_eval and case.lm_eval in names}, python)


def run(args, cases: dict, python: str) -> None:
    """Compare the cases, by the name of lm_eval's task, and print the differences."""
    from vernacular.data.load import WORKFLOW, load_items
    from vernacular.data.tasks import load_task

    differences = 0
    with tempfile.TemporaryDirectory() as temporary:
        items = {}
        for name, case in cases.items():
            task = load_task(WORKFLOW / "tasks" / f"{case.task}.yaml")
            own = Path(temporary, "own", case.task, case.language, f"{case.split}.jsonl")
            write(own, [row | {"_config": case.config} for row in case.rows])
            items[name] = load_items(task, case.language, source=str(Path(temporary, "own")))[0]
            for source in task["languages"][case.language]["source"]:
                write_dataset(Path(temporary, "hub", source["hub"]), case)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        environment |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(Path(temporary, "hf")), "TQDM_DISABLE": "1"}
        for name, case in cases.items():  # one process each: a task that cannot be loaded is reported alone
            command = [python, __file__, "documents", name]
            run = subprocess.run(
                command, cwd=Path(temporary, "hub"), env=environment, capture_output=True, text=True, check=False
            )
            if run.returncode:
                print(f"{name}: not loaded: {run.stderr.strip().splitlines()[-1][:200]}")
                differences += 1
                continue
            problems, compared = compare(case, items[name], json.loads(run.stdout.splitlines()[-1])[name])
            print(
                f"{case.task}.{case.language}: {name}: {len(items[name])} items, {compared}"
                + "; ".join(["", *problems])
            )
            differences += len(problems)
        if args.model:
            differences += compare_values(args, cases, items, Path(temporary))
    print(f"{differences} differences")


def compare_values(args, cases: dict, items: dict, directory: Path) -> int:
    """Run a model on the same rows with lm_eval's tasks and with the task files; return the number of differences."""
    import lm_eval_values

    hub, runs, own = directory / "hub", [(name, 0) for name in cases], {}
    for name, case in cases.items():
        if entry := own_entry(name, case, directory):
            own[name] = entry
    args.limit, args.threads, args.chat = 1_000_000, 1, False
    args.reference = str(Path(args.reference).absolute())
    tables = {"tasks": ["../tasks"], "evaluations": list(own.values())}
    lm_eval_values.run_vernacular(args, runs, hub, 0, tables)
    lm_eval_values.run_reference(args, runs, hub, 0)
    expected, read = json.loads((hub / "hf.json").read_text()), lm_eval_values.Own(hub)
    print("\nlm_eval's tasks, by name:")
    differences = lm_eval_values.compare(read, expected)
    print("\ntask files:\n| task | items | outputs | largest difference, nats | decisions | accuracy |\n|" + "---|" * 6)
    for name, _, _, results, samples in expected:
        if name in own:
            differences += compare_own(name, own[name], items[name], results[name], samples[name], read)
    return differences


def own_entry(name: str, case, directory: Path) -> dict | None:
    """Return the config's entry of a task file whose prompt is lm_eval's; write the variant with lm_eval's words."""
    import yaml
    from vernacular.core.languages import prompts_file
    from vernacular.data.load import WORKFLOW
    from vernacular.data.tasks import load_task
    from vernacular.protocols.prompts import PROMPTS_DIR, VARIANTS

    protocol = load_task(WORKFLOW / "tasks" / f"{case.task}.yaml")["protocols"][0]
    entry = {"task": case.task, "languages": [case.language], "protocols": [protocol]}
    content = yaml.safe_load((WORKFLOW / "tasks" / f"{case.task}.yaml").read_text("utf-8"))
    stated = content["languages"][case.language]
    source = {"source": {"file": f"../own/{case.task}/{case.language}/{case.split}.jsonl"}}
    content["languages"] = {case.language: (stated if isinstance(stated, dict) else {"code": stated}) | source}
    tasks = directory / "tasks"
    tasks.mkdir(exist_ok=True)
    (tasks / f"{case.task}.yaml").write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), "utf-8")
    if protocol == "minimal_pair":
        return entry
    if name not in WORDS:
        return None
    path = tasks / "prompts" / f"{case.language}.yaml"
    content = yaml.safe_load((path if path.exists() else prompts_file(case.language, PROMPTS_DIR)).read_text("utf-8"))
    layout, text = WORDS[name]
    content[VARIANTS].setdefault(VARIANT, {"differs": "the words of lm_eval"})[layout] = text
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), "utf-8")
    return entry | {"prompts": [VARIANT]}


def compare_own(name: str, entry: dict, items: list[dict], results: dict, samples: list, read) -> int:
    """Print a row on a task file's outputs and those of lm_eval; return the number of differences."""
    variant = f".{VARIANT}" if "prompts" in entry else ""
    ((protocol,), (language,)) = entry["protocols"], entry["languages"]
    evaluation = f"{entry['task']}.{language}.{protocol}.0shot{variant}"
    outputs, largest, problems, n_outputs, n_decisions = read.output(evaluation), 0.0, [], 0, 0
    filters = {row[2] for row in samples}
    for index, responses, filter_name in samples:
        if filter_name != min(filters):
            continue
        item, n_outputs = items[index]["item_id"], n_outputs + len(responses)
        if protocol == "generation":  # lm_eval's text goes on after the line
            found, expected = outputs[item, "response"]["raw_output"], responses[0][0]
            n_decisions += 1
            if found.strip() != expected.split("\n")[0].strip():
                problems.append(f"{item}: {found!r}, of lm_eval {expected!r}")
            continue
        own = [sum(outputs[item, f"choice:{i}"]["logprobs"]) for i in range(len(responses))]
        other = [float(response[0][0]) for response in responses]
        differences = [abs(a - b) for a, b in zip(own, other, strict=True)]
        largest = max(largest, *differences)
        n_decisions += own.index(max(own)) == other.index(max(other))
        # lm_eval puts a space before a text without a context, after a BOS or EOS: only the decisions are comparable
        is_comparable = outputs[item, "choice:0"]["request"]["span_start"] > 0
        if own.index(max(own)) != other.index(max(other)) or (is_comparable and max(differences) > 1e-3):
            problems.append(f"{item}: {own}, of lm_eval {other}")
    cell = (evaluation, "accuracy", "")
    accuracies = [
        row["value"] for row in read.all_rows if cell == (row["evaluation"], row["metric"], row["category"] or "")
    ]
    if protocol != "generation" and (len(accuracies) != 1 or abs(accuracies[0] - results["acc,none"]) > 1e-9):
        problems.append(f"accuracy {accuracies}, of lm_eval {results['acc,none']}")
    print(f"| `{evaluation}`, `{name}` | {len(items)} | {n_outputs} | {largest:.0e} | {n_decisions} | {accuracies} |")
    for problem in problems:
        print(f"  {problem}")
    return len(problems)


def compare(case, items: list[dict], rows: list[list]) -> tuple[list[str], str]:
    """Return the differences between items and lm_eval's documents, and what was compared."""
    from vernacular.data.load import WORKFLOW
    from vernacular.data.tasks import load_task
    from vernacular.protocols.build import build
    from vernacular.types import accepted_answers, last_number

    problems = [] if len(items) == len(rows) else [f"{len(rows)} documents of lm_eval"]
    compared = {"answers"}
    task = load_task(WORKFLOW / "tasks" / f"{case.task}.yaml")
    for item, (text, options, target) in zip(items, rows, strict=False):
        if options is None:
            if last_number(str(target)) not in map(last_number, accepted_answers(item)):
                problems.append(f"target {target} of lm_eval, {item['target']}")
            continue
        if case.task == "icelandic_winogrande":  # lm_eval's options are left contexts, the text is their index
            options, target = item["choices"], text
        are_texts = not all(len(option) == 1 and option.isascii() and option.isupper() for option in options)
        if are_texts and case.task not in ("afrixnli", "sib200"):  # these have the words of the language here
            compared.add("options")
            problems += [] if options == item["choices"] else [f"options {options} of lm_eval, {item['choices']}"]
        index = target if isinstance(target, int) else options.index(target)
        problems += [] if [index] == item["gold"] else [f"correct option {index} of lm_eval, {item['gold']}"]
        if task["protocols"][0] == "minimal_pair":
            compared.add("requests")
            settings = {"protocol": "minimal_pair", "shots": 0, "seed": 0, "style": "default", "options": {}}
            requests, _ = build([item], task, language=case.language, **settings)
            scored = [row for row in requests if row["role"].startswith("choice:")]
            for row, option in zip(scored, options, strict=True):
                parts = row["text"][: row["span_start"]], row["text"][row["span_start"] : row["span_end"]]
                # lm_eval joins context and continuation by a space; without a context, the space is not scored here
                expected = (text, f" {option}" if text else option)
                problems += [] if parts == expected else [f"request {parts}, of lm_eval {expected}"]
    return problems, " and ".join(sorted(compared))


def write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def write_dataset(directory: Path, case) -> None:
    """Write the rows as all splits of a configuration, where `datasets` finds them by the repository's name."""
    write(directory / "rows.jsonl", case.rows)
    files = [{"split": split, "path": "rows.jsonl"} for split in ("train", "validation", "test", "dev")]
    card = json.dumps({"configs": [{"config_name": case.config, "data_files": files}]})
    (directory / "README.md").write_text(f"---\n{card}\n---\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["documents"]:
        documents(sys.argv[2:])
    else:
        main()
