"""Servers that fail now and then: nothing is lost, and no answered request is repeated."""

import os
import threading
import time
from email.utils import formatdate
from types import SimpleNamespace

import pytest
from support import served, tiny
from support.engines import score
from vernacular.core.errors import ServerError
from vernacular.inference.schema import MemoryJournal
from vernacular.inference.server.client import AdaptiveLimit, Client, RefusedError, Slots, retry_after
from vernacular.inference.server.served import open_server

TEXTS = [(f"O gato {i:02} dorme no tellado.", 10, 28) for i in range(12)]


@pytest.fixture(autouse=True)
def short_waits(low_limits):
    low_limits("inference.server.client", FIRST_WAIT=0.01)


@pytest.fixture(scope="module")
def honest(model, tmp_path_factory):
    """(record, rows) of an honest server"""
    with served.Server(model) as server:
        record = served.record(server, tmp_path_factory.mktemp("model"), tokenizer=model)
        return record, score(open_server(record), tiny.score_requests(TEXTS))[0].to_pylist()


def too_many(server, number, path):
    return (429, {"Retry-After": "0"}) if number % 4 == 1 else None


@pytest.mark.parametrize(("value", "seconds"), [("90000", 600.0), ("nan", 1.5), ("-3", 0.0), ("soon", 1.5)])
def test_wait_that_a_server_asks_for_is_limited(value, seconds):
    assert retry_after(SimpleNamespace(headers={"Retry-After": value}), 1.5) == seconds


@pytest.mark.skipif(os.geteuid() != 0, reason="requires two users")
def test_slots_of_another_user_are_refused(tmp_path):
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(ServerError, match=r"belongs to another user\. Set TMPDIR to another directory"):
        Slots("http://node:1", 2, tmp_path)


def too_many_until_a_date(server, number, path):
    return (429, {"Retry-After": formatdate(time.time(), usegmt=True)}) if number % 4 == 1 else None


def every_third(server, number, path):
    return 500 if number % 3 == 0 else None


def hangs(server, number, path):
    return "hang" if number in (2, 7) else None


def drops(server, number, path):
    return "drop" if number % 3 == 2 else None


def garbage(server, number, path):
    return "garbage" if number % 3 == 1 else None


def restarts(server, number, path):
    return 503 if number <= 6 else None


FAULTS = [too_many, too_many_until_a_date, every_third, hangs, drops, garbage, restarts]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_faults_are_survived_with_nothing_lost_and_nothing_requested_twice(model, honest, fault):
    record, expected = honest
    with served.Server(model, faults=fault) as server:
        remote = open_server(record | {"source": server.source, "timeout": 8 if fault is hangs else 60})
        table, metadata = score(remote, tiny.score_requests(TEXTS))
    assert table.to_pylist() == expected
    assert set(server.answered.values()) == {1}
    assert len(server.answered) == len(TEXTS) == metadata["counters"]["server"]["requests"]
    assert metadata["counters"]["server"]["retries"] >= 1
    assert server.received == len(TEXTS) + metadata["counters"]["server"]["retries"]


def test_dead_server_keeps_answered_requests_and_the_next_run_asks_for_the_rest_only(model, honest):
    record, expected = honest
    journal = MemoryJournal()
    with served.Server(model, faults=lambda server, number, path: None if number <= 5 else 502) as server:
        remote = open_server(record | {"source": server.source}, attempts=2)
        with pytest.raises(ServerError, match=r"model big: .* no answer after 2 attempts \(HTTP 502"):
            score(remote, tiny.score_requests(TEXTS), journal=journal)
        first = set(server.answered)
    assert len(first) == 5
    with served.Server(model) as server:
        remote = open_server(record | {"source": server.source})
        rows = score(remote, tiny.score_requests(TEXTS), journal=journal)[0].to_pylist()
    assert rows == expected
    assert len(server.answered) == len(TEXTS) - 5
    assert not first & set(server.answered)


def refuse_long(server, original, body):
    if len(body["prompt"]) > 100:
        raise served.Refusal(400, "too long")


def test_refused_request_is_an_error_of_its_row_and_is_not_repeated(model, honest):
    record, expected = honest
    with served.Server(model, lie={"check_model": refuse_long}) as server:
        remote = open_server(record | {"source": server.source})
        rows = score(remote, tiny.score_requests([*TEXTS[:2], ("O gato dorme. " * 20, 266, 279)]))[0].to_pylist()
    assert rows[:2] == expected[:2]
    assert rows[2]["flags"] == "error: the server refused the request (HTTP 400: too long)"
    assert rows[2]["logprobs"] is None
    assert server.received == 3


def test_concurrency_is_bounded_and_halved_by_429(model, honest):
    record, _ = honest
    with served.Server(model, faults=served.slow) as server:
        score(open_server(record | {"source": server.source, "concurrency": 3}), tiny.score_requests(TEXTS))
    assert 2 <= server.most_active <= 3
    limit = AdaptiveLimit(8)
    limit.halve()
    limit.halve()
    assert limit.limit == 2
    for _ in range(50):
        limit.count_answer()
    assert limit.limit == 3


def test_two_clients_share_the_limit_of_a_server(tmp_path):
    first, second = (Slots("http://node:1", 2, tmp_path) for _ in range(2))
    active, most, lock = 0, 0, threading.Lock()

    def use(slots):
        nonlocal active, most
        with slots.slot(time.sleep):
            with lock:
                active += 1
                most = max(most, active)
            time.sleep(0.02)
            with lock:
                active -= 1

    threads = [threading.Thread(target=use, args=(slots,)) for slots in (first, second) * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 2


def test_key_is_sent_as_a_header_and_appears_in_no_message(model):
    with served.Server(model, key="sk-other") as server:
        client = Client(server.source, key=served.KEY, key_name="MY_KEY", attempts=1)
        with pytest.raises(ServerError) as error:
            client.get("/models")
        assert "MY_KEY" in str(error.value)
        assert served.KEY not in str(error.value)
        assert server.headers == [f"Bearer {served.KEY}"]
        without = Client(server.source, attempts=1)
        with pytest.raises(ServerError, match="api_key_env"):
            without.get("/models")
        assert server.headers[-1] is None


def test_missing_endpoint_is_refused_without_a_second_attempt(model):
    with served.Server(model) as server:
        client = Client(server.source, attempts=5)
        with pytest.raises(RefusedError, match="HTTP 404"):
            client.get("/nothing", root=True)
        assert server.received == 1
