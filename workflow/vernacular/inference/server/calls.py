"""Requests to a server, answered concurrently and journaled one by one.

A call is one unit of work with a name that is a hash of its content. An answered call is written to the journal, so
that it is never repeated: neither within a run nor after a kill of this job or of the server.
"""

from collections.abc import Callable
from typing import Protocol

from vernacular.core.errors import ModelError, ServerError
from vernacular.core.progress import Progress
from vernacular.inference.journal import Journal
from vernacular.inference.server.client import RefusedError
from vernacular.inference.server.forms import CHECKS, AnswerError, LengthError
from vernacular.inference.server.served import ServedModel


class Call(Protocol):
    """One unit of work."""

    name: str


def answer_all(served: ServedModel, calls: list, answer: Callable[[Call], dict], journal: Journal, label: str) -> dict:
    """Return {name: answer} of all calls, from the journal or from `answer(call)`; `label` begins the progress line.

    An answer is a dict of JSON-like values; that of a request which the server refuses, or of a prompt that it does not
    read completely, is {"error": reason}. A malformed one is not in the journal.

    Raises:
        ServerError: The server cannot be reached; answers are in the journal.
        ModelError: A response is not what the probe found.
        Stopped: A stop signal was received.
    """
    answers = {call.name: rows[0] for call in calls if (rows := journal.get(call.name))}
    pending = [call for call in calls if call.name not in answers]

    def attempt(call: Call) -> dict:
        with served.client.stated.flags() as flags:
            try:
                result = answer(call)
            except RefusedError as error:
                return {"error": f"the server refused the request ({error})"}
            except LengthError as error:
                return {"error": str(error)}
        return result | {"flags": sorted(flags)} if flags else result

    try:
        with Progress(label, len(calls), "request") as progress:
            progress.advance(len(answers))
            for call, result in served.client.map(attempt, pending):
                answers[call.name] = result
                progress.advance()
                with journal.defer_signals():
                    journal.add(call.name, [result])
    except AnswerError as error:
        raise ModelError(
            f"model {served.record['name']}: the server fails check {error.check} ({CHECKS[error.check]}), "
            f"which it passed at the start: {error}."
        ) from error
    except ServerError as error:
        raise ServerError(f"model {served.record['name']}: {error}") from error
    finally:
        journal.flush()
    return answers
