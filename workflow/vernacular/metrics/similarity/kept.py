"""Vectors kept from one evaluation to the next, so that a text that several share meets its encoder once.

The options of a task are the same at 0 and at 5 shots and in every prompt style; what was used longest ago goes first.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any

LIMIT = 2**30  # bytes


class Kept:
    """Values by key, up to `limit` bytes by the sizes that `size` gives."""

    def __init__(self, size: Callable[[Any], int], limit: int = LIMIT):
        self.size, self.limit = size, limit
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._bytes = 0

    def all(self, keys: Iterable[Hashable], make: Callable[[list], list]) -> dict[Hashable, Any]:
        """The value of every key; those not kept are made together: `make(missing keys)`, one value each.

        >>> squares = Kept(lambda value: 8, limit=16)
        >>> squares.all([2, 3], lambda keys: [key**2 for key in keys])
        {2: 4, 3: 9}
        >>> squares.all([3, 4], lambda keys: [key**2 for key in keys if key != 3])
        {3: 9, 4: 16}
        """
        keys = list(dict.fromkeys(keys))
        found = {key: self._values[key] for key in keys if key in self._values}
        for key in found:
            self._values.move_to_end(key)
        missing = [key for key in keys if key not in found]
        if missing:
            made = dict(zip(missing, make(missing), strict=True))
            found |= made
            for key, value in made.items():
                self._values[key] = value
                self._bytes += self.size(value)
            while self._bytes > self.limit and self._values:
                self._bytes -= self.size(self._values.popitem(last=False)[1])
        return {key: found[key] for key in keys}
