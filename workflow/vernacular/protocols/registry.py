"""The protocols there are, found by their packages, and what an evaluation may set for each."""

from vernacular.core.fingerprint import import_each

PROTOCOLS = {
    name: module.PROTOCOL
    for name, module in import_each("vernacular/protocols/*/__init__.py").items()
    if hasattr(module, "PROTOCOL")
}
GENERATED = {name for name, protocol in PROTOCOLS.items() if protocol.generates}
SCORED = PROTOCOLS.keys() - GENERATED
CAUSAL_ONLY = {name for name, protocol in PROTOCOLS.items() if protocol.causal_only}
OPTIONS = {option: allowed for protocol in PROTOCOLS.values() for option, allowed in protocol.options.items()}


def takes_shots(protocol: str, item_type: str) -> bool:
    """Whether few-shot examples can stand before the item. In a source's own wording they always can."""
    return PROTOCOLS[protocol].few_shot or item_type == "verbatim"


def takes_prompt_lines(protocol: str, item_type: str, style: str) -> bool:
    """Whether the language's prompt lines are used, rather than a wording of its own or none."""
    declared = PROTOCOLS[protocol]
    return declared.few_shot and item_type != "verbatim" and style not in declared.tool_styles


def protocols_with(option: str) -> list[str]:
    """Names of the protocols that read an option of `evaluations:`."""
    return [name for name, protocol in PROTOCOLS.items() if option in protocol.options]
