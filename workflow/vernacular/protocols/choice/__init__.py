"""choice: multiple choice answered in words, from which the letter of an option is extracted."""

from vernacular.protocols.declaration import MULTITURN, Protocol

PROTOCOL = Protocol(
    generates=True,
    causal_only=True,
    chat_only=True,
    few_shot=True,
    styles=("default", "english"),
    lines=("letter", "choice"),
    options={"gen_kwargs": dict, "repeats": int, "pass_at": int} | MULTITURN,
    dependent_options={"pass_at": "repeats"},
    majority="position",
    external="options",
    letters=True,
    note="A response without a letter or option that can be found counts as incorrect (extraction_failed).",
)
