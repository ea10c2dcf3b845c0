"""Requests go to one address, are repeated where that may help, and tell nothing of the key."""

import pytest

from kvbench.served import client as clients
from kvbench.served.address import Address
from kvbench.served.client import Client, RefusedError, repeats_line
from kvbench.served.facts import read_facts
from kvbench.system.errors import KVBenchError
from tests.support.serving.stub import Stub, running

WORDS = "Where does Ana live?"
BODY = {"messages": [{"role": "user", "content": WORDS}]}
PATH = "/chat/completions"
KEY = "sk-of-nobody-1234567890"


def client_of(stub: Stub, options: str = "") -> Client:
    return Client(Address.read(f"{stub.url}({options})" if options else stub.url))


@pytest.fixture(autouse=True)
def _without_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "FIRST_WAIT", 0.001)


def test_busy_servers_and_answers_that_break_off_are_asked_again() -> None:
    with running(Stub({WORDS: "Oslo"})) as stub, client_of(stub) as client:
        stub.faults.extend(["429", "500", "cut", "half", "503"])
        answer = client.ask(PATH, BODY)
    assert answer["choices"][0]["message"]["content"] == "Oslo."
    counted = {"status 429": 1, "status 500": 1, "the answer broke off": 2, "status 503": 1}
    assert client.repeats == counted
    assert repeats_line(client.repeats).startswith("5 requests were sent again (")
    assert stub.questions[WORDS] == 1


def test_an_answer_that_takes_too_long_is_asked_for_again() -> None:
    with running(Stub({WORDS: "Oslo"})) as stub, client_of(stub, "seconds=1") as client:
        stub.faults.append("slow")
        client.ask(PATH, BODY)
    assert set(client.repeats) == {"no answer within 1 s"}


def test_a_server_that_stays_busy_ends_the_run_with_what_to_do() -> None:
    with running(Stub({WORDS: "Oslo"})) as stub, client_of(stub) as client:
        stub.faults.extend(["429"] * clients.ATTEMPTS)
        with pytest.raises(KVBenchError, match=r"no answer in 6 attempts \(at last: status 429\)"):
            client.ask(PATH, BODY)
        assert len(stub.bodies) == clients.ATTEMPTS


def test_nobody_at_the_address_is_told_without_the_address() -> None:
    with running(Stub()) as stub:
        address = stub.url
    with client_of(stub) as client, pytest.raises(KVBenchError, match="no connection") as told:
        read_facts(client)
    assert address not in str(told.value)


def test_a_refused_request_is_told_once_without_key_and_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with running(Stub({WORDS: "Oslo"}, key=KEY)) as stub, client_of(stub, "key=MY_KEY") as client:
        stub.faults.append("400")
        with pytest.raises(RefusedError, match="400: wait, … of …") as told:
            client.ask(PATH, BODY)
        assert KEY not in str(told.value)
        assert len(stub.bodies) == 1


def test_a_wrong_key_is_told_without_what_the_server_says_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KVBENCH_API_KEY", "sk-another")
    with running(Stub(key=KEY)) as stub, client_of(stub) as client:
        with pytest.raises(KVBenchError, match=r"refuses the key, or wants one \(401\)") as told:
            read_facts(client)
        assert "sk-another" not in str(told.value)


def test_a_key_of_another_service_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with running(Stub()) as stub, client_of(stub) as client:
        read_facts(client)
        assert all("Authorization" not in sent for sent in stub.headers)


def test_no_request_goes_to_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a server nor a proxy of the environment leads a request elsewhere."""
    with running(Stub({WORDS: "Oslo"})) as stub, running(Stub()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        monkeypatch.setenv("ALL_PROXY", proxy.url.removesuffix("/v1"))
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        with client_of(stub) as client:
            client.ask(PATH, BODY)
            stub.faults.append("elsewhere")
            with pytest.raises(KVBenchError, match=r"sends elsewhere \(307\)"):
                client.ask(PATH, BODY)
        assert proxy.headers == []
        with client_of(stub, "proxy=yes") as client:
            client.look_up("/models")
        assert len(proxy.headers) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://", "give the address of a server as http://HOST:PORT/v1"),
        ("http://host:port/v1", "give the address of a server as http://HOST:PORT/v1"),
        ("http://ada:secret@host/v1", "has no user, key or question in it"),
        ("http://host/v1?key=secret", "has no user, key or question in it"),
        ("http://host/v1(prompt=raw)", "prompt=raw needs the model's tokenizer"),
        ("http://host/v1(requests=0)", "requests"),
        ("http://host/v1(speed=1)", "no option speed"),
    ],
)
def test_addresses_that_no_server_has_are_refused(text: str, words: str) -> None:
    with pytest.raises(KVBenchError, match=words):
        Address.read(text)


def test_what_is_stored_of_an_address_names_no_host_and_no_place() -> None:
    address = Address.read("https://host.example:8443/v1/(tokenizer=/home/ada/qwen,requests=2)")
    assert address.url == "https://host.example:8443/v1"
    assert address.root == "https://host.example:8443"
    assert address.shown == "http://SERVER/v1(tokenizer=qwen)"
    assert "host" not in repr(address)


def test_a_key_that_was_named_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(KVBenchError, match="the environment variable MY_KEY holds no key"):
        Address.read("http://host/v1(key=MY_KEY)").read_key()
