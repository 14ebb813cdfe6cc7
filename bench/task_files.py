"""Compare included task files with lm_eval's tasks on the same rows: options, answers, and scored texts.

    python bench/task_files.py --lm-eval-python .lm-eval/bin/python

For each case of `tests/support/catalogue_rows.py` with a task of lm_eval, both tools read the same local rows. Compared
are the number of items, the correct option and, where lm_eval shows the texts of the options and not letters, their
texts. Where the task is scored as minimal pairs, the context and the continuation of every request must be equal to
lm_eval's too, so that the log-likelihoods are (`lm_eval_values.py` shows that equal texts have equal values).
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
    args = parser.parse_args()
    python = str(Path(args.lm_eval_python).absolute())

    from support.catalogue_rows import CASES
    from vernacular.data.load import WORKFLOW, load_items
    from vernacular.data.tasks import load_task

    names = args.tasks.split(",") if args.tasks else [case.lm_eval for case in CASES]
    cases = {case.lm_eval: case for case in CASES if case.lm_eval and case.lm_eval in names}
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
    print(f"{differences} differences")


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
