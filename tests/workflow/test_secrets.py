"""A token goes to the Hub and nowhere else: to no server that the Hub sends on to, no proxy, no file, no sentence.

Real sockets: the Hub, another server that it redirects to, and a proxy, each of which writes down all that it hears.
What a whole run leaves on disk and in the list of processes is looked at in test_from_the_hub.
"""

import subprocess
import sys

import pytest
from support.hub_server import environment

TOKEN = "hf_" + "s3cret" * 5
# asks for a model, a data set of the Hub, and a file on the web, and says what became of it
ASK = """
import sys, time
from vernacular.checkpoints.resolve import locate
from vernacular.core import hub_snapshot as web
from vernacular.data import hub
from vernacular.core.errors import UserError
time.sleep = lambda seconds: None
for what, ask in (
    ("model", lambda: locate("me/model@main")[0]),
    ("adapter", lambda: locate("me/adapter")[0]),
    ("set", lambda: hub.fetch({"hub": "me/set", "split": "test"})[0]),
    ("web", lambda: web.fetch(sys.argv[1] + "/files/rows.csv", None)[0].read_text()),
):
    try:
        print(what, repr(ask()))
    except UserError as error:
        print(what, "REFUSED", error)
"""
FILES = {
    "me/model": {"config.json": "{}", "model.safetensors": b"weights"},
    "me/adapter": {"adapter_config.json": "{}", "adapter_model.safetensors": b"weights"},
    "me/set": {"test.csv": "a,b\n1,2\n"},
}


@pytest.fixture
def servers(start_hub):
    hub, other = start_hub(), start_hub()
    hub.token = TOKEN
    for name, files in FILES.items():
        hub.add(name, files, private=True)
        other.add(name, files)  # the same commits, for everybody
    hub.plain["/files/rows.csv"] = other.plain["/files/rows.csv"] = b"a,b\n1,2\n"
    return hub, other


def ask(hub: str, home, *, in_a_file: bool = False, **more) -> tuple[dict[str, str], str]:
    """What was answered to each question, and all that was said; the token in the environment, or in its file."""
    home.mkdir()
    if in_a_file:
        (home / "token").write_text(TOKEN)
    else:
        more["HF_TOKEN"] = TOKEN
    loud = {"HF_DEBUG": "1", "HF_HUB_VERBOSITY": "debug", "HTTPX_LOG_LEVEL": "trace"}
    run = subprocess.run(
        [sys.executable, "-c", ASK, more.pop("web", hub)],
        capture_output=True, text=True, check=False, env=environment(hub, home, **loud, **more),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    lines = [line for line in run.stdout.splitlines() if line.split(" ")[0] in ("model", "adapter", "set", "web")]
    said = run.stdout + run.stderr
    for path in home.rglob("*"):
        if path.is_file() and path != home / "token":
            said += path.read_bytes().decode("utf-8", "replace")
    return dict(line.split(" ", 1) for line in lines), said


def test_a_token_does_not_follow_a_redirect_to_another_server(servers, tmp_path):
    hub, other = servers
    hub.stored |= {f"/{name}/resolve/": other.address for name in ("me/model", "me/adapter", "datasets/me/set")}
    hub.stored["/files/"] = other.address.replace("127.0.0.1", "localhost")
    got, said = ask(hub.address, tmp_path / "home")
    assert not [what for what in got.values() if what.startswith("REFUSED")], got
    assert TOKEN in {token for _, path, token in hub.log if path.startswith("/api/")}, "the Hub itself is given it"
    assert len([path for method, path, _ in other.log if method == "GET"]) >= 6
    assert TOKEN.encode() not in b"".join(other.heard)
    assert TOKEN not in said


def test_nor_when_the_whole_hub_has_moved(servers, tmp_path):
    hub, other = servers
    hub.moved = other.address
    got, said = ask(hub.address, tmp_path / "home", in_a_file=True)
    assert TOKEN in {token for _, _, token in hub.log}, "the Hub itself is given it"
    assert "a,b" in got["web"], got
    assert other.heard
    assert TOKEN.encode() not in b"".join(other.heard)
    assert TOKEN not in said


def test_a_proxy_never_sees_it_and_its_own_password_is_not_shown(servers, tmp_path):
    _, proxy = servers
    address = proxy.address.replace("http://", "http://me:pa55word@")
    got, said = ask(
        "https://hub.invalid", tmp_path / "home", web="https://web.invalid", HTTPS_PROXY=address, ALL_PROXY=address
    )
    assert set(got) == {"model", "adapter", "set", "web"}
    assert all(what.startswith("REFUSED") for what in got.values()), got
    assert b"CONNECT hub.invalid:443" in b"".join(proxy.heard)
    assert b"CONNECT web.invalid:443" in b"".join(proxy.heard)
    assert TOKEN.encode() not in b"".join(proxy.heard)
    assert TOKEN not in said
    assert "pa55word" not in said
