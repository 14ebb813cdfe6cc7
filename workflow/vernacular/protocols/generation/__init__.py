"""generation: the model writes its answer, which is compared with the options afterwards."""

from vernacular.protocols.declaration import Protocol

PROTOCOL = Protocol(
    generates=True,
    causal_only=True,
    few_shot=True,
    styles=("default", "open", "simil-eval", "simil-eval-open"),
    own_wording=True,
    majority="position",
    external="text",
)
