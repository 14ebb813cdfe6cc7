"""lighteval's `results_*.json`: values by `task|shots`, before 0.11 `suite|task|shots|truncation`."""

from vernacular.exchange.aggregates.rows import Aggregate, aggregate, part, parts

_STANDARD_ERROR = "_stderr"


def is_lighteval(content: dict) -> bool:
    return isinstance(content.get("results"), dict) and "config_general" in content


def read(content: dict, location: str) -> list[Aggregate | str]:
    """Return the values of all tasks; means over tasks (`all`, `…:_average|…`) are not read."""
    rows, general = [], part(content, "config_general")
    configs = {key.replace("|", ":"): each for key, each in parts(content.get("config_tasks"))}
    model = part(general, "model_config").get("model_name") or general.get("model_name")
    for task, values in parts(content["results"]):
        if task == "all" or ":_average" in task:
            continue
        names = task.split("|")
        numbers = [name for name in names if name.isdecimal()]
        words = ":".join(name for name in names if not name.isdecimal())
        own = configs.get(task.replace("|", ":")) or configs.get(words) or {}
        splits = own.get("evaluation_splits")
        for metric, value in values.items():
            if metric.endswith(_STANDARD_ERROR):
                continue
            rows.append(
                aggregate(
                    location=location,
                    tool="lighteval",
                    version=None if general.get("lighteval_sha") == "?" else general.get("lighteval_sha"),
                    model=model,
                    task=task,
                    metric=metric,
                    value=value,
                    n=own.get("effective_num_docs") if own.get("effective_num_docs") != -1 else None,
                    se=values.get(f"{metric}{_STANDARD_ERROR}"),
                    uncertainty="standard error",
                    shots=numbers[0] if numbers else own.get("num_fewshots"),
                    dataset=own.get("hf_repo"),
                    configuration=own.get("hf_subset"),
                    split=splits[0] if isinstance(splits, list) and len(splits) == 1 else None,
                    revision=own.get("hf_revision"),
                )
            )
    return rows
