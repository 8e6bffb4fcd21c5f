"""Whatever a sidecar, a network or an attacker does instead of deciding: `Unavailable`, by the one
deadline, and nothing that is guarded runs."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack

import pytest

from tests.deploy.sdk.python.scripted_server import ALLOW, DENY, response, says, serving
from tests.deploy.sdk.python.test_no_decision import ANSWERS, BROKEN, KEY, SLOW
from tests.deploy.sdk.typescript.node import run
from tests.support.ports import free_port

CHECK = """
const guard = (url, timeout = 0.5) => new Guard(url, given.key, "agt", "support", { timeout });
const ran = [];
/** A guarded function and a guarded generator, each with its own guard. */
const refused = async (url, timeout) => [
  await outcome(guard(url, timeout).source("s")(async () => ran.push("function"))()),
  await outcome(
    guard(url, timeout)
      .source("s")(async function* () {
        ran.push("generator");
        yield 1;
      })()
      .next(),
  ),
];
"""
EACH = (
    CHECK
    + """
const found = {};
for (const [name, url] of Object.entries(given.urls)) {
  found[name] = await refused(url, given.timeout);
}
return { found, ran };
"""
)


def each(urls: dict[str, str], timeout: float) -> dict[str, list[str]]:
    """The messages by which two guarded functions are refused at each address. Neither runs."""
    told = run(EACH, urls=urls, timeout=timeout, key=KEY)
    assert told["ran"] == []
    for name, outcomes in told["found"].items():
        for outcome in outcomes:
            assert outcome["name"] == "Unavailable", name
            assert KEY not in outcome["shown"]
            assert outcome["shown"].endswith(" undefined")  # no cause
    return {
        name: [outcome["message"] for outcome in outcomes]
        for name, outcomes in told["found"].items()
    }


def test_nothing_but_a_decision_is_taken_for_one() -> None:
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(serving(says(answer)))
            for name, answer in ANSWERS.items()
            if name != "two answers"  # the first of them counts, see below
        }
        each({name: server.url for name, server in servers.items()}, 5)
        assert {len(server.requests) for server in servers.values()} == {2}


def test_a_second_answer_answers_nothing() -> None:
    with serving(says(ANSWERS["two answers"])) as server:
        script = """
        const guard = new Guard(given.url, "k", "a", "r", { timeout: 5 });
        const names = [];
        for (let times = 0; times < 3; times += 1) {
          names.push((await outcome(guard.check("s"))).name);
        }
        guard.close();
        return names;
        """
        assert run(script, url=server.url) == ["Denied"] * 3
        assert server.connections == 3


def test_a_broken_answer_is_no_decision() -> None:
    with ExitStack() as stack:
        servers = {name: stack.enter_context(serving(how)) for name, how in BROKEN.items()}
        each({name: server.url for name, server in servers.items()}, 5)
        # Neither a redirect nor a failure leads to another request.
        assert {len(server.requests) for server in servers.values()} == {2}


def test_the_deadline_covers_the_whole_check() -> None:
    with ExitStack() as stack:
        servers = {name: stack.enter_context(serving(how)) for name, how in SLOW.items()}
        told = each({name: server.url for name, server in servers.items()}, 0.5)
    # With a limit for each read, those that drip would get their ALLOW through.
    assert all("within 0.5 s" in text for texts in told.values() for text in texts)


def test_a_peer_without_a_listener_or_without_tls_is_unavailable() -> None:
    with serving(says(response(ALLOW))) as server:
        urls = {
            "closed": f"http://127.0.0.1:{free_port()}",
            "no such name": "http://sidecar.invalid",
        }
        told = each(urls, 20)
        each({"no TLS": server.url.replace("http:", "https:")}, 0.5)
        assert server.requests == []
    assert "no sidecar listens at 127.0.0.1" in told["closed"][0]
    assert "no sidecar listens at sidecar.invalid" in told["no such name"][0]


def test_a_peer_that_takes_no_data() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        script = """
        const guard = new Guard(given.url, "k", "a", "r", { timeout: 0.5 });
        return outcome(guard.check("s", "low", { query: "x".repeat(20_000_000) }));
        """
        assert "within 0.5 s" in run(script, url=url)["message"]


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(says(response(ALLOW))) as own, serving(says(response(ALLOW))) as proxy:
        monkeypatch.setenv("NODE_USE_ENV_PROXY", "1")
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        script = 'return (await new Guard(given.url, "k", "a", "r").check("s")).decision;'
        assert run(script, url=own.url) == "ALLOW"
        assert (len(own.requests), len(proxy.requests)) == (1, 0)


def test_no_check_is_repeated_or_cached() -> None:
    with serving(*[says(response(each)) for each in (ALLOW, DENY, ALLOW, DENY)]) as server:
        script = """
        const guard = new Guard(given.url, "k", "a", "r");
        const names = [];
        for (let times = 0; times < 4; times += 1) {
          const { name = "ALLOW" } = await outcome(guard.check("s"));
          names.push(name);
        }
        guard.close();
        return names;
        """
        assert run(script, url=server.url) == ["ALLOW", "Denied", "ALLOW", "Denied"]
        assert (len(server.requests), server.connections) == (4, 1)


@pytest.mark.parametrize("late", [response(ALLOW), b"HTTP/1.1 200"])
def test_unrequested_data_answers_no_later_check(late: bytes) -> None:
    """An ALLOW on an idle connection is not the answer to the next question."""

    def twice(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(response(DENY))
        # expires on purpose
        ended.wait(0.2)  # by then the connection is idle
        connection.sendall(late)

    with serving(twice, says(response(DENY))) as server:
        script = """
        const guard = new Guard(given.url, "k", "a", "r", { timeout: 5 });
        const first = await outcome(guard.check("s"));
        await new Promise((resolve) => setTimeout(resolve, 600));
        const second = await outcome(guard.check("s"));
        guard.close();
        return [first.name, second.name];
        """
        assert run(script, url=server.url) == ["Denied", "Denied"]
        assert server.connections == 2


def test_unrequested_data_during_a_busy_event_loop_answers_no_later_check() -> None:
    """The connection holds an ALLOW before the question is sent, and Node has not seen it yet."""

    def twice(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(response(DENY))
        # expires on purpose
        ended.wait(0.2)
        connection.sendall(response(ALLOW))

    with serving(twice, says(response(DENY))) as server:
        script = """
        const guard = new Guard(given.url, "k", "a", "r", { timeout: 5 });
        const first = await outcome(guard.check("s"));
        // Blocks the event loop, and takes no CPU.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 600);
        const second = await outcome(guard.check("s"));
        guard.close();
        return [first.name, second.name];
        """
        assert run(script, url=server.url) == ["Denied", "Denied"]
        assert server.connections == 2


def test_a_closed_guard_allows_nothing() -> None:
    with serving(says(response(ALLOW))) as server:
        script = """
        const guard = new Guard(given.url, "k", "a", "r");
        const waiting = outcome(guard.check("s"));
        guard.close();
        return [(await waiting).name, await outcome(guard.check("s"))];
        """
        waiting, later = run(script, url=server.url)
        assert waiting == "Unavailable"
        assert "closed" in later["message"]


@pytest.mark.parametrize("key", ["", "a b", "a\r\nX-Other: 1", "ä", "a\x00", None, 7])
def test_an_impossible_key_is_refused_without_being_shown(key: object) -> None:
    script = """
    try {
      new Guard("http://h", given.key, "a", "r");
    } catch (error) {
      return `${error.name}: ${error.message}`;
    }
    """
    assert run(script, key=key) == "TypeError: the key is empty, or has characters that no key has"


def test_an_impossible_address_is_refused_without_being_shown() -> None:
    urls = ["", "h", "ftp://h", "http://", "http://u:secret@h", "http://h?k=secret", "file:///x"]
    script = """
    return given.urls.map((url) => {
      try {
        new Guard(url, "k", "a", "r");
      } catch (error) {
        return `${error.name} ${error.stack}`;
      }
    });
    """
    for told in run(script, urls=urls):
        assert told.startswith("TypeError")
        assert "secret" not in told


def test_the_key_appears_nowhere() -> None:
    script = """
    const { inspect } = await import("node:util");
    const guard = new Guard("http://h", given.key, "a", "r");
    const forms = [inspect(guard, { showHidden: true, depth: 9 }), `${guard}`];
    return [...forms, JSON.stringify({ guard }), Object.keys(guard).join()];
    """
    shown = run(script, key=KEY)
    assert all(KEY not in text for text in shown)
    assert shown[0] == "<Guard http://h/ agent=a role=r>"
