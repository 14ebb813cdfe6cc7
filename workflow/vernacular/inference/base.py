"""A base in memory and the models that are evaluated with it, none of which changes another.

The base itself and each of its adapters use the same tensors, one after the other. Whatever a model left behind is
found before the next one begins: by the checksums of all parameters and buffers and by the module tree, both taken when
the base was loaded. On a difference the base is loaded again.
"""

import contextlib
import gc
import logging
from collections.abc import Iterator

import torch

from vernacular.core.errors import ModelError
from vernacular.inference.adapter import adapted
from vernacular.inference.checksum import ModelState, state_of
from vernacular.inference.load import LoadedModel, load

log = logging.getLogger("vernacular")


class Base:
    """The base that `record` describes, loaded.

    `shared`: it is for several models; for one alone nothing is verified. Raises what `load` raises.
    """

    def __init__(self, record: dict, *, threads: int | None = None, shared: bool = True):
        self.record = {key: value for key, value in record.items() if key != "adapter"}
        self.threads, self.shared = threads, shared
        self.reloads: list[dict] = []  # for each time that it had to be loaded again: after which model, what differed
        self._user: str | None = None  # the model that was evaluated last
        self._state: ModelState | None = None
        self.loaded: LoadedModel | None = None
        self._load()

    @contextlib.contextmanager
    def model(self, record: dict) -> Iterator[LoadedModel]:
        """Yield the model of `record`, the base itself or one of its adapters; the base is first verified.

        Raises ModelError where the adapter cannot be put on, and where the base had to be loaded again and could not
        be; `loaded` is None then.
        """
        self.verify()
        self._user = record["name"]
        with adapted(self.loaded, record) if record.get("adapter") else contextlib.nullcontext(self.loaded) as loaded:
            try:
                yield loaded
            finally:
                self.loaded.evaluations = loaded.evaluations

    def verify(self) -> None:
        """Load the base again if it is not what it was when it was loaded; raises what `load` raises."""
        if self.loaded is None:
            self._load()
        elif self._user is not None:
            if not self.shared:
                raise ValueError(f"{self.record['name']} was loaded for one model, and is asked for another.")
            if changed := self._state.differences(state_of(self.loaded.model)):
                self._load_again(changed)
        self._user = None

    def _load_again(self, changed: list[str]) -> None:
        name, count = self.record["name"], f"{len(changed)} of its parts ({changed[0]}, …)"
        log.warning("model %s: %s changed %s; loading it again", name, self._user, count)
        self.reloads.append({"after": self._user, "changed": len(changed), "first": changed[0]})
        self.loaded = None
        gc.collect()  # modules and PEFT's refer to each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self._load()

    def _load(self) -> None:
        loaded = load(self.record, threads=self.threads)
        if self.shared:
            state = state_of(loaded.model)
            # a tensor without a checksum cannot be compared; what was loaded counts
            if self._state and (changed := [n for n in self._state.differences(state) if self._comparable(n)]):
                raise ModelError(
                    f"model {self.record['name']}: {self.record['folder']} changed while the job ran: {len(changed)} "
                    f"tensors ({changed[0]}, …) differ from those loaded before. Run again."
                )
            self._state = self._state or state
        if self.reloads:
            loaded.notes["base_loaded_again"] = {"times": len(self.reloads), **self.reloads[-1]}
        self.loaded = loaded

    def _comparable(self, name: str) -> bool:
        return name not in self._state.tensors or self._state.tensors[name][-1] is not None
