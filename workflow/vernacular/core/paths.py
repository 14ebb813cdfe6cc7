"""Paths: the directory of the workflow's files, how paths and the command of the run are displayed, what is published.

Published texts have no paths of this machine, and no addresses of private servers. An address is public if its host is
a domain name of the internet and nothing else identifies a server: no port, no user, no key among its parameters. All
others are shortened to their scheme.
"""

import ipaddress
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

_PACKAGE = Path(__file__).resolve().parents[1]
# a wheel contains a copy of the checkout's workflow/ (setup.py), because the package is not in it there
WORKFLOW = installed if (installed := _PACKAGE / "checkout" / "workflow").is_dir() else _PACKAGE.parent


def user_cache() -> Path:
    """Return the directory of what the package keeps for this user; it may not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vernacular")


def display_path(path) -> str:
    """Return a path as a user would type it: relative to the working directory if it is below it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def rerun_command(options: str) -> str:
    """Return the command of this run with other options, for messages of jobs; the rules state it (`common.smk`)."""
    return f"{os.environ.get('VERNACULAR_RUN', 'snakemake -c4')} {options}"


# an absolute path of two or more parts, with spaces inside only where a quoted path has them; not the path of a URL
_ABSOLUTE_PATH = re.compile(r"""(?<![\w:/.~\-\\>])/(?:[^\s/'"`,;:()<>|]+/)+[^\s/'"`,;:()<>|]*""")


def without_local_paths(text: str) -> str:
    """Return `text` for publication: paths below the working directory as relative ones, other absolute ones by name.

    >>> without_local_paths("/home/ana/models/tiny: not found; see https://example.org/a/b")
    '…/tiny: not found; see https://example.org/a/b'
    """
    return _ABSOLUTE_PATH.sub(lambda match: _published(match.group()), text)


def _published(path: str) -> str:
    relative = os.path.relpath(path)
    return f"…/{os.path.basename(os.path.normpath(path))}" if relative.startswith("..") else relative


# reserved for local networks (RFC 6761, 6762, 8375; .internal: ICANN 2024), or usual there
_LOCAL = (".local", ".localhost", ".localdomain", ".internal", ".intranet", ".private", ".corp", ".home", ".lan",
          ".home.arpa", ".invalid", ".test")  # fmt: skip
_SECRETS = re.compile("key|token|secret|password|signature|credential", re.IGNORECASE)
_ADDRESS = re.compile(r"""\b(?:https?|file)://[^\s'"`,;()<>|]*[^\s'"`,;()<>|.:!?]""", re.IGNORECASE)
_IP = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?(?![\w.-]*\w)")


def is_public_address(address: str) -> bool:
    """Return whether the address of a server or a file may be published.

    >>> [is_public_address(a) for a in ("https://api.example.org/v1", "http://node7:8000/v1", "http://10.0.0.5/v1")]
    [True, False, False]
    """
    try:
        parts = urlsplit(address)
        is_plain = parts.port is None and parts.username is None
    except ValueError:
        return False
    host = (parts.hostname or "").rstrip(".")
    is_domain = "." in host and not _is_ip(host) and not host.endswith(_LOCAL)
    return is_plain and is_domain and not any(_SECRETS.search(name) for name, _ in parse_qsl(parts.query))


def publishable(value):
    """Return a text, or the texts in lists and dicts, without paths of this machine and private addresses.

    >>> publishable("http://node7:8000/v1: no answer; see https://example.org/a/b")
    'http://…: no answer; see https://example.org/a/b'
    """
    if isinstance(value, dict):
        return {key: publishable(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [publishable(entry) for entry in value]
    if not isinstance(value, str):
        return value
    text = _ADDRESS.sub(lambda match: _shortened(match.group()), value)
    return without_local_paths(_IP.sub(lambda match: "…" if _is_private_ip(match.group()) else match.group(), text))


def _shortened(address: str) -> str:
    return address if is_public_address(address) else f"{address.partition(':')[0]}://…"


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_private_ip(text: str) -> bool:
    """Return whether `text` is an IP address of a private network; not 0.…, which is a version."""
    host = text.partition(":")[0]
    return _is_ip(host) and not host.startswith("0.") and ipaddress.ip_address(host).is_private
