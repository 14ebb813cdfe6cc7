"""Labels among the most probable next tokens of a server that returns their text instead of their IDs.

A label is answerable if exactly one of the listed tokens has its bytes. This is the only form without token IDs, and
only for labels: a label of several tokens is never in the list.
"""

from vernacular.inference.server.completions import Completions, token_bytes
from vernacular.inference.server.forms import LETTERS, AnswerError, elements, listed, read


class TextLabels:
    """Log-probabilities of the `k` most probable next tokens, by their text; `chat`: as the answer in a chat."""

    def __init__(self, completions: Completions, k: int, *, chat: bool):
        self._completions, self.k, self.chat = completions, k, chat
        self.name = f"top {k} texts" + (" of a chat" if chat else "")

    def label_texts(self, prompt: str | list[dict], labels: list[str]) -> tuple[list[float | None], int | None]:
        """Return the log-probability (nats) of each label as the next token, and the length of the prompt in tokens.

        None: the label is not in the list, or two tokens have its text. Raises AnswerError without a list, and what
        `Client.post` raises.
        """
        fields = {"logprobs": True, "top_logprobs": self.k} if self.chat else {"logprobs": self.k}
        completion = self._completions.complete(prompt, 1, **fields)
        logprobs = read(completion.content, "choices", 0, "logprobs")
        top = read(logprobs, "top_logprobs", 0)
        if isinstance(top, dict):
            pairs = [(token.encode("utf-8", "surrogatepass"), value) for token, value in top.items()]
        else:
            entries = elements(read(logprobs, "content", 0, "top_logprobs"))
            pairs = [(token_bytes(entry), read(entry, "logprob")) for entry in entries]
        if not pairs:
            raise AnswerError(LETTERS, f"{self.name}: the response contains no list of the most probable tokens")
        values = listed(pairs, self.name)
        return [values.get(label.encode("utf-8")) for label in labels], completion.prompt_tokens
