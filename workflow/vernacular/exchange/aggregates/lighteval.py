"""lighteval's `results_*.json`: values by `task|shots`, before 0.11 `suite|task|shots|truncation`."""

from collections.abc import Iterator

from vernacular.exchange.aggregates.rows import STANDARD_ERROR, objects, part, parts


def fits(content: dict) -> bool:
    return isinstance(content.get("results"), dict) and "config_general" in content


def read(content: dict) -> Iterator[dict]:
    """Yield the values of all tasks; not the means over tasks (`all`, `…:_average|…`)."""
    general, configs = part(content, "config_general"), dict(parts(content.get("config_tasks")))
    configs = {key.replace("|", ":"): each for key, each in configs.items()}
    labels = {"tool": "lighteval", "version": general.get("lighteval_sha")}
    labels |= {"model": part(general, "model_config").get("model_name") or general.get("model_name")}
    for task, values in parts(content["results"]):
        if task == "all" or ":_average" in task:
            continue
        numbers = [name for name in task.split("|") if name.isdecimal()]
        words = ":".join(name for name in task.split("|") if not name.isdecimal())
        own = configs.get(task.replace("|", ":")) or configs.get(words) or {}
        splits, shots = own.get("evaluation_splits"), numbers[0] if numbers else own.get("num_fewshots")
        row = labels | {"task": task, "n": own.get("effective_num_docs"), "shots": shots}
        row |= {"dataset": own.get("hf_repo"), "configuration": own.get("hf_subset")}
        row |= {"split": splits[0] if isinstance(splits, list) and len(splits) == 1 else None}
        row |= {"revision": own.get("hf_revision"), "uncertainty": "standard error"}
        better = {str(each.get("metric_name")): each.get("higher_is_better") for each in objects(own.get("metrics"))}
        for metric in values:
            if not metric.endswith(STANDARD_ERROR):
                row |= {"higher_is_better": better.get(metric)}
                yield row | {"metric": metric, "value": values[metric], "se": values.get(f"{metric}{STANDARD_ERROR}")}
