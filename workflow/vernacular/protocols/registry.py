"""All protocols, found by their packages, and the settings of each."""

from vernacular.core.fingerprint import import_modules

PROTOCOLS = {
    name: module.PROTOCOL
    for name, module in import_modules("vernacular/protocols/*/__init__.py").items()
    if hasattr(module, "PROTOCOL")
}
GENERATED = {name for name, protocol in PROTOCOLS.items() if protocol.generates}
SCORED = PROTOCOLS.keys() - GENERATED
CAUSAL_ONLY = {name for name, protocol in PROTOCOLS.items() if protocol.causal_only}
OPTIONS = {option: allowed for protocol in PROTOCOLS.values() for option, allowed in protocol.options.items()}


def supports_few_shot(protocol: str, item_type: str) -> bool:
    """Return whether few-shot examples can precede the item; with a task's own prompt text, they always can."""
    return PROTOCOLS[protocol].few_shot or item_type == "lm_eval"


def uses_prompt_lines(protocol: str, item_type: str, style: str) -> bool:
    """Return whether the prompt lines of the language are used, instead of other prompt text or none."""
    declaration = PROTOCOLS[protocol]
    return declaration.few_shot and item_type != "lm_eval" and style not in declaration.tool_styles


def protocols_with(option: str) -> list[str]:
    """Return the names of the protocols with an option of `evaluations:`."""
    return [name for name, protocol in PROTOCOLS.items() if option in protocol.options]
