"""lm-evaluation-harness' `results_*.json`: values by `metric,filter`, and before version 0.4 by `metric`."""

from vernacular.exchange.aggregates.rows import Aggregate, aggregate, part, parts

_ABOUT = ("alias", "name", "samples", "sample_len", "sample_count", " ")  # of a task, not values
_STANDARD_ERROR = "_stderr"


def is_lm_eval(content: dict) -> bool:
    """Return whether this is a file of results; lighteval's have `config_general` instead of `config`."""
    return isinstance(content.get("results"), dict) and "config" in content and "versions" in content


def read(content: dict, location: str) -> list[Aggregate | str]:
    """Return the values of all tasks; those of groups, which are means over tasks, are not read."""
    rows = []
    config, groups = part(content, "config"), part(content, "group_subtasks")
    means = part(content, "groups")  # in files without the subtasks
    arguments = config.get("model_args")
    if not isinstance(arguments, dict):
        arguments = dict(each.partition("=")[::2] for each in str(arguments or "").split(","))
    name = arguments.get("pretrained") or content.get("model_name") or arguments.get("model")
    for task, values in parts(content["results"]):
        if groups.get(task) or task in means:
            continue
        own, n = part(content, "configs", task), part(content, "n-samples", task)
        shots = part(content, "n-shot").get(task, own.get("num_fewshot", config.get("num_fewshot")))
        better = part(content, "higher_is_better", task)
        for key, value in values.items():
            metric, _, filtered = key.partition(",")
            if key in _ABOUT or metric.endswith(_STANDARD_ERROR):
                continue
            error = f"{metric}{_STANDARD_ERROR}" + (f",{filtered}" if filtered else "")
            rows.append(
                aggregate(
                    location=location,
                    tool="lm-eval" if config.get("model") != "vernacular" else "vernacular",
                    version=content.get("lm_eval_version") or content.get("git_hash"),
                    model=name,
                    task=task,
                    metric=metric if filtered in ("", "none") else key,
                    value=value,
                    higher_is_better=better.get(metric),
                    n=n.get("effective") or values.get("sample_len") or values.get("samples"),
                    se=values.get(error),
                    uncertainty="standard error",
                    shots=shots,
                    dataset=own.get("dataset_path"),
                    configuration=own.get("dataset_name"),
                    split=own.get("test_split") or own.get("validation_split"),
                    revision=part(own, "dataset_kwargs").get("revision"),
                )
            )
    return rows
