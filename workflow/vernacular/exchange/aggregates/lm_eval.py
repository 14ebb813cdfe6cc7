"""lm-evaluation-harness' `results_*.json`: values by `metric,filter`, and before version 0.4 by `metric`."""

from collections.abc import Iterator

from vernacular.exchange.aggregates.rows import STANDARD_ERROR, part, parts

_ABOUT = ("alias", "name", "samples", "sample_len", "sample_count", " ")  # of a task, not values


def fits(content: dict) -> bool:
    """Return whether this is a file of results; lighteval's have `config_general` instead of `config`."""
    return isinstance(content.get("results"), dict) and "config" in content and "versions" in content


def read(content: dict) -> Iterator[dict]:
    """Yield the values of all tasks; not those of groups, which are means over tasks."""
    config, groups = part(content, "config"), part(content, "group_subtasks")
    means = part(content, "groups")  # in files without the subtasks
    arguments = config.get("model_args")
    if not isinstance(arguments, dict):
        arguments = dict(each.partition("=")[::2] for each in str(arguments or "").split(","))
    labels = {"tool": "lm-eval" if config.get("model") != "vernacular" else "vernacular"}
    labels |= {"model": arguments.get("pretrained") or content.get("model_name") or arguments.get("model")}
    labels |= {"version": content.get("lm_eval_version") or content.get("git_hash"), "uncertainty": "standard error"}
    for task, values in parts(content["results"]):
        if groups.get(task) or task in means:
            continue
        own, n = part(content, "configs", task), part(content, "n-samples", task)
        shots = part(content, "n-shot").get(task, own.get("num_fewshot", config.get("num_fewshot")))
        row = labels | {"task": task, "shots": shots, "dataset": own.get("dataset_path")}
        row |= {"n": n.get("effective") or values.get("sample_len") or values.get("samples")}
        row |= {"configuration": own.get("dataset_name"), "split": own.get("test_split") or own.get("validation_split")}
        row |= {"revision": part(own, "dataset_kwargs").get("revision")}
        for key, value in values.items():
            metric, _, filtered = key.partition(",")
            if key not in _ABOUT and not metric.endswith(STANDARD_ERROR):
                named = metric if filtered in ("", "none") else key
                better = part(content, "higher_is_better", task).get(metric)
                error = values.get(f"{metric}{STANDARD_ERROR}" + (f",{filtered}" if filtered else ""))
                yield row | {"metric": named, "value": value, "higher_is_better": better, "se": error}
