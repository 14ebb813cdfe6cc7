"""Mistakes in what a user wrote, collected so that all of them are reported at once."""

import contextlib
from collections.abc import Iterator

from vernacular.core.errors import ConfigError, format_count

_MAX_SHOWN = 20  # messages; one mistake in a long list can cause hundreds


class Problems:
    """Messages of one or two lines each, in the order in which they were found, without repetitions."""

    def __init__(self):
        self._messages: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: str) -> None:
        self._messages.setdefault(message)

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Add the ConfigError that ends the block, if any, and continue after it."""
        try:
            yield
        except ConfigError as error:
            self.add(str(error))

    def raise_all(self) -> None:
        """Raise ConfigError with all messages, one after the other; return if there are none."""
        if not self._messages:
            return
        messages = list(self._messages)
        if n_hidden := len(messages[_MAX_SHOWN:]):
            messages[_MAX_SHOWN:] = [f"and {format_count(n_hidden, 'more mistake')}"]
        raise ConfigError("\n".join(messages))
