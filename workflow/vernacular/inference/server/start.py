"""The start of a job with a served model: the probe again, compared with the record."""

import logging
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from vernacular.core.errors import ModelError, ServerError, format_count
from vernacular.core.library_errors import wrap_tokenizer_panics
from vernacular.core.model_record import ModelRecord, ServerRecord
from vernacular.inference.model.tokenizers import load_tokenizer
from vernacular.inference.schema import characters_of
from vernacular.inference.server import checks
from vernacular.inference.server.client import RefusedError, Usage
from vernacular.inference.server.forms import AnswerError
from vernacular.inference.server.probe import changed_forms, differences, probe
from vernacular.inference.server.served import ServedModel, connect, open_server

log = logging.getLogger("vernacular")


def start(record: ModelRecord, requests: Iterable[pa.Table] = ()) -> tuple[ServedModel, Usage]:
    """Return a model whose server answers as when it was recorded, and the usage of the probe.

    The longest prompt of `requests` must be read whole. Raises ModelError if the server fails a check twice or answers
    otherwise, and ServerError.
    """
    longest = longest_prompt(requests)
    client = connect(record)

    def ask() -> ServerRecord:
        server = record.server
        return probe(record, client, tokenizer, server.known, longest, server.model, trial=server.trial)

    try:
        tokenizer = load_tokenizer(record, record.directory) if record.directory else None
        with wrap_tokenizer_panics(record):
            try:
                current = ask()
                problem = changed_forms(record.server, current)
            except ServerError:
                raise
            except ModelError as error:
                problem = str(error)
            if problem:  # maybe of a single answer
                log.warning("model %s: the server is probed once more: %s", record.name, problem)
                current = ask()
    finally:
        client.close()
    if difference := differences(record.server, current):
        raise _other_model(record, difference)
    if cut := current.reasons.get("length"):
        advice = ", or set max_length" if current.tokenizer else ""  # without one, nothing is shortened
        raise ModelError(
            f"model {record.name}: {record.source} does not read a prompt of this run whole: {cut}. Start the server "
            f"with a longer context{advice}."
        )
    return open_server(record | {"server": replace(record.server, checks=current.checks)}), client.usage


def report_usage(name: str, usage: Usage, probe_usage: Usage) -> None:
    """Print the requests and tokens of a job."""
    line = f"infer: {name}: {describe_usage(usage)}"
    log.info(f"{line}; the probe: {describe_usage(probe_usage)}")
    print(line, flush=True)


def longest_prompt(tables: Iterable[pa.Table]) -> str | None:
    """Return the longest text of the requests in some tables; None without any."""
    longest = ""
    for table in tables:
        lengths = characters_of(table["prefix"]) + characters_of(table["text"])
        if len(lengths) and lengths.max() > len(longest):
            row = int(lengths.argmax())
            longest = table["prefix"][row].as_py() + table["text"][row].as_py()
    return longest or None


def describe_usage(usage: Usage) -> str:
    """Return the numbers of requests and tokens as one line.

    >>> describe_usage(Usage(requests=2, retries=1, prompt_tokens=1500, completion_tokens=1))
    '2 requests answered (1 repeated), 1,500 tokens read, 1 generated'
    """
    requests = f"{format_count(usage.requests, 'request')} answered ({usage.retries} repeated)"
    return f"{requests}, {usage.prompt_tokens:,} tokens read, {usage.completion_tokens:,} generated"


def verify_answers(served: ServedModel) -> None:
    """Raise ModelError if the server's answers to a few texts are no longer those of the record.

    Without log-probabilities, nothing is compared: greedy texts change with the noise of a batch.
    """
    stored = served.record.server.answers.get("values")
    if served.spans is None or not stored:
        return

    def ask(text: str) -> list[float]:
        return checks.values_of(served.spans.score(checks.ids_of(served, text), 0))

    for text, values in zip(checks.TEXTS, stored, strict=False):  # fewer, of a trial
        try:
            try:
                current = ask(text)
            except (AnswerError, RefusedError) as error:  # maybe of a single answer
                log.warning("model %s: the server is asked once more: %s", served.record.name, error)
                current = ask(text)
        except (AnswerError, RefusedError) as error:
            raise _other_model(served.record, str(error)) from error
        except ServerError as error:
            raise ServerError(f"model {served.record.name}: {error}") from error
        if not checks.agree(values, current):
            largest = checks.deviations(values, current)[1]
            raise _other_model(served.record, f"log-probabilities differ by up to {largest:.2f} nats")


def _other_model(record: ModelRecord, difference: str) -> ModelError:
    name = record.name
    return ModelError(
        f"model {name}: {record.source} does not answer as it did when the model was recorded: {difference}. If "
        f"another model is served on purpose, delete resources/models/{name}.json and run the workflow again."
    )
