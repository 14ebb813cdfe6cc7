"""Command `show`: the requests of one item, as they are sent to a model, before any model is run."""

from pathlib import Path

from vernacular.commands.common import inference_record
from vernacular.config import dependencies
from vernacular.config.load import Config, load
from vernacular.config.placement import run_command
from vernacular.core import artifacts
from vernacular.core.errors import UserError, format_count, suggest
from vernacular.core.model_record import ModelRecord
from vernacular.core.paths import display_path
from vernacular.data.load import load_items
from vernacular.protocols.build import build_evaluation
from vernacular.protocols.schema import REQUESTS
from vernacular.types import Request, skipped_reason


def show(args) -> str:
    """Print an item's requests: messages or text, the scored span in ⟦ ⟧, stop strings, and tokens with --model.

    The dataset is read as in a run (samples, files, or the Hub). Tokens require the record of the model,
    `resources/models/NAME.json`; its weights are not read.

    Raises:
        UserError: The evaluation, the item or the model does not exist, or the dataset is unavailable.
    """
    config = load([args.config])
    if args.evaluation not in config.evaluations:
        hint = suggest(args.evaluation, config.evaluations)
        raise UserError(f'{display_path(args.config)}: evaluation "{args.evaluation}" not found.{hint}')
    rows = _rows(config, args.evaluation, args.config)
    by_item: dict[str, list[Request]] = {}
    for row in rows:
        by_item.setdefault(row["item_id"], []).append(row)
    if not 1 <= args.item <= len(by_item):
        raise UserError(f"{args.evaluation}: expected an item from 1 to {len(by_item)}, got {args.item}.")
    item_id, requests = list(by_item.items())[args.item - 1]
    loaded = _tokenizer_only(config, args.model, args.config) if args.model else None
    print(f"{args.evaluation}, item {args.item} of {len(by_item)}: {item_id}")
    for row in requests:
        print(f"\n--- {row['role']}")
        if (reason := skipped_reason(row["role"])) is None:
            _print_request(row, loaded)
        else:
            print(f"skipped: {reason}")
    marks = "; the text in ⟦ ⟧ is scored" if any(row["kind"] == "score" for row in requests) else ""
    return f"\nshow: {format_count(len(requests), 'request')}{marks}"


def _rows(config: Config, evaluation: str, file: Path) -> list[Request]:
    if evaluation in config.lm_eval:  # only lm-eval can build them
        path = Path(config.output, "requests", f"{evaluation}.parquet")
        if not path.exists():
            raise UserError(f"{path}: file not found. Run `{run_command(file, str(path))}` to write the prompts first.")
        outcome = artifacts.metadata(path, REQUESTS).outcome
        if not outcome.is_complete:
            raise UserError(f"{evaluation}: {outcome.reason}")
        return artifacts.read(path, REQUESTS).to_pylist()
    spec = dependencies.requests_spec(config)["evaluations"][evaluation]
    dataset = dependencies.items_spec(config)["items"][spec["items"]]
    items, _ = load_items(dataset["task"], dataset["language"], source=dataset["data"], limit=dataset["limit"])
    return build_evaluation(items, spec)[0]


def _print_request(row: Request, loaded) -> None:
    if row["messages"] and row["kind"] == "generate":
        print("with a chat template:")
        for message in row["messages"]:
            print(f"  {message['role']}: {message['content']}")
        print("without:")
    text = row["prefix"] + row["text"]
    if row["kind"] == "score":
        text = f"{text[: row['span_start']]}⟦{text[row['span_start'] : row['span_end']]}⟧{text[row['span_end'] :]}"
    print(text)
    if row["stop"]:
        print(f"stop strings: {', '.join(map(repr, row['stop']))}")
    if loaded is not None:
        _print_tokens(row, loaded)


def _print_tokens(row: Request, loaded) -> None:
    """Print the tokens that the model reads; those of the scored span are in ⟦ ⟧."""
    from vernacular.inference.generation.prepare import prepare_prompt
    from vernacular.inference.scoring.prepare import prepare

    if row["kind"] == "generate":
        prompt = prepare_prompt(loaded, row)
        ids, first, stop, flag = prompt.ids, 0, 0, prompt.flag
        if prompt.rendered is not None:
            print(f"with the model's chat template:\n{prompt.rendered}")
    else:
        request = prepare(loaded, row)
        ids, first, stop, flag = request.ids, request.first, request.stop, request.flag
    tokens = [repr(loaded.tokenizer.decode([token])) for token in ids]
    tokens[first:stop] = [f"⟦{token}⟧" for token in tokens[first:stop]]
    print(f"{format_count(len(ids), 'token')}: {' '.join(tokens)}")
    if flag:
        print(f"flags: {flag}")


def _served(record: ModelRecord):
    """Return a model behind a server, whose tokenizer prints the tokens; nothing is generated or scored."""
    from vernacular.inference.server.served import open_server

    served = open_server(record, attempts=2)
    if served.tokenizer is None:
        raise UserError(f"model {record.name}: its tokenizer is not known; set tokenizer in the config.")
    return served


def _tokenizer_only(config: Config, name: str, file: Path):
    """Return the model without weights: its config and its tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    from vernacular.inference.model.loaded import wrap

    if name not in config.models:
        raise UserError(f'model "{name}" not found in the config.{suggest(name, config.models)}')
    path = Path("resources", "models", f"{name}.json")
    if not path.exists():
        raise UserError(f"{path}: file not found. Run `{run_command(file, str(path))}` to fetch the model first.")
    record = inference_record(path, dependencies.inference_spec(config, [name]))
    if record.server:
        return _served(record)
    kwargs = {"local_files_only": True, "trust_remote_code": bool(record.trust_remote_code)}
    model_class = AutoModelForCausalLM if record.kind == "causal" else AutoModelForMaskedLM
    with torch.device("meta"):
        model = model_class.from_config(
            AutoConfig.from_pretrained(record.directory, **kwargs), trust_remote_code=kwargs["trust_remote_code"]
        )
    has_own = record.adapter is not None and record.adapter.own_tokenizer
    tokenizer_dir = record.adapter.directory if has_own else record.directory
    return wrap(model, AutoTokenizer.from_pretrained(tokenizer_dir, **kwargs), record)
