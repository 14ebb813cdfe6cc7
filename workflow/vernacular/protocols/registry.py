"""All protocols, found by their packages, and the settings of each."""

from vernacular.core.fingerprint import import_modules
from vernacular.types import OPTIONS_ONLY

PROTOCOLS = {
    name: module.PROTOCOL
    for name, module in import_modules("vernacular/protocols/*/__init__.py").items()
    if hasattr(module, "PROTOCOL")
}
GENERATED = {name for name, protocol in PROTOCOLS.items() if protocol.generates}
SCORED = PROTOCOLS.keys() - GENERATED
OWN = {name: protocol for name, protocol in PROTOCOLS.items() if not protocol.tool}  # not of a tool
# generated texts whose similarity to the options is computed
COMPARED = {name for name, protocol in PROTOCOLS.items() if protocol.similarity}
TOOL_PROTOCOLS = PROTOCOLS.keys() - OWN.keys()
PROSE = {name for name, protocol in PROTOCOLS.items() if protocol.generates and not protocol.structured}
# with texts that a judge may read: not the letter of an option
JUDGED = {name for name, protocol in OWN.items() if name in PROSE and not protocol.letters}
OPTIONS = {option: allowed for protocol in PROTOCOLS.values() for option, allowed in protocol.options.items()}


def uses_prompt_lines(protocol: str, style: str) -> bool:
    """Return whether the prompt lines of the language are used, instead of other prompt text or none."""
    declaration = PROTOCOLS[protocol]
    return declaration.few_shot and style not in declaration.tool_styles


def takes_examples(protocol: str, style: str) -> bool:
    """Return whether few-shot examples can precede an item."""
    return PROTOCOLS[protocol].few_shot and not style.endswith(OPTIONS_ONLY)


def protocols_with(option: str) -> list[str]:
    """Return the names of the protocols with an option of `evaluations:`."""
    return [name for name, protocol in OWN.items() if option in protocol.options]
