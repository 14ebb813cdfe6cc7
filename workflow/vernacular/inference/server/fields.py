"""The fields that a server accepts: sampling fields, the name of the limit, and the kinds of prompts.

Some servers refuse every field that they do not know. All sampling fields are sent if they are accepted, because
servers take missing ones from the model's own settings; else those of OpenAI's API, the temperature alone, or none.
"""

import itertools

from vernacular.core.errors import ModelError
from vernacular.inference.server import checks
from vernacular.inference.server.client import Client, DeniedError, RefusedError
from vernacular.inference.server.completions import LIMITS, Completions
from vernacular.inference.server.forms import EXTENDED, STANDARD, AnswerError

CHAT = [{"role": "user", "content": checks.PROMPT}]
_FIELD_SETS = ({**STANDARD, **EXTENDED}, STANDARD, {"temperature": 0.0}, {})  # tried until one is accepted


def negotiate(client: Client, model: str) -> tuple[Completions, set[str]]:
    """Return the completions of a server with the fields that it accepts, and the kinds of prompts: text, chat.

    Raises:
        ModelError: The server generates no text.
        DeniedError: The key is wrong.
    """
    refusals = []
    for fields, limit in itertools.product(_FIELD_SETS, LIMITS):
        completions = Completions(client, model, fields, limit)
        prompts, denied = set(), []
        for name, prompt in (("text", checks.PROMPT), ("chat", CHAT)):
            try:
                completions.complete(prompt, 1)
                prompts.add(name)
            except (RefusedError, AnswerError) as error:
                refusals.append(str(error))
            except DeniedError as error:  # of one kind of prompts, where there is no such endpoint
                denied.append(error)
        if prompts:
            return completions, prompts
        if len(denied) == 2:
            raise denied[0]
    raise ModelError(f"{client.source}: the server generates no text ({refusals[0]}).")
