"""generation: generated responses, compared with the options."""

from vernacular.core.fingerprint import import_modules
from vernacular.protocols.declaration import Protocol

_TOOLS = import_modules("vernacular/interop/*/__init__.py").values()  # empty if interop/ was deleted
_TOOL_STYLES = tuple(style for tool in _TOOLS for style in getattr(tool, "STYLES", ()))

PROTOCOL = Protocol(
    generates=True,
    causal_only=True,
    few_shot=True,
    styles=("default", "open", *_TOOL_STYLES),
    tool_styles=_TOOL_STYLES,
    majority="position",
    external="text",
)
