"""A token is sent to the Hub only: to no redirect target, no proxy, no file, no message.

The tests use real sockets: the Hub, another server that it redirects to, and a proxy, each of which records all requests.
Files and command lines of a complete run are tested in test_from_the_hub.
"""

import subprocess
import sys

import pytest
from support.hub_server import environment

TOKEN = "hf_" + "s3cret" * 5
# downloads a model, an adapter, a dataset and a web file, and prints the outcome of each
PROGRAM = """
import sys, time
from vernacular.checkpoints.resolve import locate
from vernacular.core import hub_snapshot as web
from vernacular.data import hub
from vernacular.core.errors import UserError
time.sleep = lambda seconds: None
for name, download in (
    ("model", lambda: locate("me/model@main")[0]),
    ("adapter", lambda: locate("me/adapter")[0]),
    ("set", lambda: hub.fetch({"hub": "me/set", "split": "test"})[0]),
    ("web", lambda: web.fetch(sys.argv[1] + "/files/rows.csv", None)[0].read_text()),
):
    try:
        print(name, repr(download()))
    except UserError as error:
        print(name, "REFUSED", error)
"""
FILES = {
    "me/model": {"config.json": "{}", "model.safetensors": b"weights"},
    "me/adapter": {"adapter_config.json": "{}", "adapter_model.safetensors": b"weights"},
    "me/set": {"test.csv": "a,b\n1,2\n"},
}


@pytest.fixture
def servers(start_hub):
    hub, other_server = start_hub(), start_hub()
    hub.token = TOKEN
    for name, files in FILES.items():
        hub.add(name, files, private=True)
        other_server.add(name, files)  # the same commits, public
    hub.web_files["/files/rows.csv"] = other_server.web_files["/files/rows.csv"] = b"a,b\n1,2\n"
    return hub, other_server


def download(hub: str, home, *, token_file: bool = False, **variables) -> tuple[dict[str, str], str]:
    """Return the outcome of each download, and all output and files; the token is in the environment or in its file."""
    home.mkdir()
    if token_file:
        (home / "token").write_text(TOKEN)
    else:
        variables["HF_TOKEN"] = TOKEN
    debug = {"HF_DEBUG": "1", "HF_HUB_VERBOSITY": "debug", "HTTPX_LOG_LEVEL": "trace"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, variables.pop("web", hub)],
        capture_output=True, text=True, check=False, env=environment(hub, home, **debug, **variables),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    lines = [line for line in run.stdout.splitlines() if line.split(" ")[0] in ("model", "adapter", "set", "web")]
    output = run.stdout + run.stderr
    for path in home.rglob("*"):
        if path.is_file() and path != home / "token":
            output += path.read_bytes().decode("utf-8", "replace")
    return dict(line.split(" ", 1) for line in lines), output


def test_token_does_not_follow_a_redirect_to_another_server(servers, tmp_path):
    hub, other_server = servers
    hub.storage_servers |= {
        f"/{name}/resolve/": other_server.address for name in ("me/model", "me/adapter", "datasets/me/set")
    }
    hub.storage_servers["/files/"] = other_server.address.replace("127.0.0.1", "localhost")
    outcomes, output = download(hub.address, tmp_path / "home")
    assert not [outcome for outcome in outcomes.values() if outcome.startswith("REFUSED")], outcomes
    assert TOKEN in {token for _, path, token in hub.log if path.startswith("/api/")}, "the Hub itself receives it"
    assert len([path for method, path, _ in other_server.log if method == "GET"]) >= 6
    assert TOKEN.encode() not in b"".join(other_server.raw_requests)
    assert TOKEN not in output


def test_token_does_not_follow_a_redirect_of_the_entire_hub(servers, tmp_path):
    hub, other_server = servers
    hub.redirect_to = other_server.address
    outcomes, output = download(hub.address, tmp_path / "home", token_file=True)
    assert TOKEN in {token for _, _, token in hub.log}, "the Hub itself receives it"
    assert "a,b" in outcomes["web"], outcomes
    assert other_server.raw_requests
    assert TOKEN.encode() not in b"".join(other_server.raw_requests)
    assert TOKEN not in output


def test_proxy_does_not_receive_the_token_and_its_password_is_not_printed(servers, tmp_path):
    _, proxy = servers
    address = proxy.address.replace("http://", "http://me:pa55word@")
    outcomes, output = download(
        "https://hub.invalid", tmp_path / "home", web="https://web.invalid", HTTPS_PROXY=address, ALL_PROXY=address
    )
    assert set(outcomes) == {"model", "adapter", "set", "web"}
    assert all(outcome.startswith("REFUSED") for outcome in outcomes.values()), outcomes
    assert b"CONNECT hub.invalid:443" in b"".join(proxy.raw_requests)
    assert b"CONNECT web.invalid:443" in b"".join(proxy.raw_requests)
    assert TOKEN.encode() not in b"".join(proxy.raw_requests)
    assert TOKEN not in output
    assert "pa55word" not in output
