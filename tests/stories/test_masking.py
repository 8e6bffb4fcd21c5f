"""Personal data is sent in every possible way; afterwards, every byte that was written is searched.

The same requests run once with masking and once without: what the first search must not find, the
second must, or the search would prove nothing.
"""

import http.client
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.stack import Stack, call
from tests.support.waiting import AWAY, until

PERSONAL = {
    "EMAIL": "ann.private@example.com",
    "PHONE": "+49 30 901820 77",
    "IBAN": "DE89 3704 0044 0532 0130 00",
    "CARD": "4111-1111-1111-1111",
    "NATIONAL_ID": "078-05-1120",
    "IP": "203.0.113.77",
    "SECRET": "swordfish-1999",
}
TEXT = "; ".join(
    f"password={value}" if label == "SECRET" else f"of {value}" for label, value in PERSONAL.items()
)
USERS = [f"token={v}" if label == "SECRET" else v for label, v in PERSONAL.items()]
DETAIL = {
    "note": TEXT,
    "deep": [{"to": [USERS[0]]}],
    USERS[0]: 1,
    "password": PERSONAL["SECRET"],
    "card": 4111111111111111,
}


@contextmanager
def stack_of(directory: Path, *, masking: bool) -> Iterator[Stack]:
    source = {
        "alias": "files",
        "kind": "rest",
        "upstream": f"http://127.0.0.1:{free_port()}",
        "listen": f"127.0.0.1:{free_port()}",
        "sensitivity": "low",
    }
    stack = Stack(directory, sources=[source])
    debug = {"SLUICE_LOG_LEVEL": "debug"}
    stack.control.environ |= {**debug, "SLUICE_PII_MASKING": str(int(masking))}
    stack.sidecar.environ |= debug
    try:
        yield stack.start()
    finally:
        stack.stop()


class Doors:
    """Send it in every way. `answers` holds every response, except what the audit trail itself
    shows."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.answers: list[str] = []
        self.events: list[str] = []

    def _call(self, port: int, path: str, body: Any, key: str, expect: int | None = 200) -> Any:
        status, answer = call(port, "POST", path, body, key=key)
        assert expect is None or status == expect, (path, status, answer)
        self.answers.append(str(answer))
        return answer

    def api(self) -> None:
        stack, port, key = self.stack, self.stack.control.port, self.stack.agent_key
        for number, user in enumerate(USERS):
            asked = stack.ask(user_id=user, query=TEXT, session_id=f"api-{number}")
            answer = self._call(port, "/v1/context/evaluate", asked, key)
            self.events.append(answer["event_id"])
        items = {"items": [stack.ask(user_id=user, query=TEXT) for user in USERS]}
        self._call(port, "/v1/context/evaluate/batch", items, key)
        action = {
            "event_id": self.events[0],
            "action_type": f"to {USERS[0]}",
            "detail": DETAIL,
            "outcome": TEXT,
        }
        self._call(port, "/v1/audit/lineage", action, key, 201)

    def alert(self) -> None:
        """An alert rule that fires on the denials here."""
        rule = {"name": "denials", "rule_type": "denial_spike", "threshold": 1}
        self.stack.admin("POST", "/v1/alerts/rules", rule)
        for user in USERS:
            asked = self.stack.ask(user_id=user, query=TEXT, source_id="payroll")
            self._call(self.stack.control.port, "/v1/context/evaluate", asked, self.stack.agent_key)
        until("the alert fires", lambda: self.stack.admin("GET", "/v1/alerts/fired"), despite=AWAY)
        self.answers.append(str(self.stack.admin("GET", "/v1/alerts/fired")))

    def sidecar(self) -> None:
        stack, port, key = self.stack, self.stack.sidecar.port, self.stack.agent_key
        for number, user in enumerate(USERS):
            asked = stack.ask(user_id=user, query=TEXT, session_id=f"sidecar-{number}")
            self._call(port, "/v1/context/evaluate", asked, key)
        self._proxied()

    def _proxied(self) -> None:
        host, _, port = str(self.stack.sources[0]["listen"]).rpartition(":")
        for user in USERS:
            connection = http.client.HTTPConnection(host, int(port), timeout=10)
            connection.request("GET", "/a", headers={"X-Sluice-User": user})
            answer = connection.getresponse()
            self.answers.append(answer.read().decode())
            assert answer.status in (403, 502), answer.status
            connection.close()

    def mistakes(self) -> None:
        """Requests that are refused: the errors describe the fault without repeating the data."""
        stack = self.stack
        wrong = [
            stack.ask(user_id=[TEXT], query={"q": TEXT}, sensitivity_level=TEXT),
            stack.ask(user_id=f"{TEXT}\n", query=TEXT, source_type=TEXT, context_hash=TEXT),
            {"event_id": TEXT, "action_type": [TEXT], "detail": TEXT},
            TEXT,
        ]
        for body in wrong:
            for port in (stack.control.port, stack.sidecar.port):
                self._call(port, "/v1/context/evaluate", body, stack.agent_key, None)
            self._call(stack.control.port, "/v1/audit/lineage", body, stack.agent_key, None)

    def metrics(self) -> None:
        for port in (self.stack.control.port, self.stack.sidecar.port):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/metrics")
            self.answers.append(connection.getresponse().read().decode())
            connection.close()


def found(where: bytes) -> set[str]:
    """The labels of the personal data found in `where`."""
    joined = where.replace(b"4111111111111111", PERSONAL["CARD"].encode())
    return {label for label, value in PERSONAL.items() if value.encode() in joined}


def written(directory: Path, part: str = "") -> bytes:
    """Everything that was written."""
    paths = [path for path in sorted((directory / part).rglob("*")) if path.is_file()]
    assert paths
    return b"\n".join(path.read_bytes() for path in paths)


@pytest.mark.parametrize("masking", [True, False])
def test_no_personal_data_is_written_anywhere_if_masking_is_on(
    tmp_path: Path, masking: bool
) -> None:
    with stack_of(tmp_path, masking=masking) as stack:
        doors = Doors(stack)
        doors.api()
        doors.sidecar()
        doors.mistakes()
        doors.alert()
        shown = str(list(stack.events())).encode()
        # Sessions are known now, so the sidecar decides alone; what it records stays in its spool.
        stack.control.signal(signal.SIGSTOP)
        try:
            doors.sidecar()
            spooled = written(tmp_path, "spool")
        finally:
            stack.control.signal(signal.SIGCONT)
        asked = stack.ask(query=TEXT)
        status, last = call(
            stack.sidecar.port, "POST", "/v1/context/evaluate", asked, key=stack.agent_key
        )
        assert status == 200
        stack.wait_shipped(last["event_id"])
        doors.metrics()
        events = list(stack.events())
        lineage = stack.admin("GET", f"/v1/audit/lineage/{doors.events[0]}")
        assert stack.verify()["valid"]
        everything = written(tmp_path)

    assert found("".join(doors.answers).encode()) == set()
    assert found((tmp_path / "control.log").read_bytes()) == set()
    assert found((tmp_path / "sidecar.log").read_bytes()) == set()
    assert {event["pii_masked"] for event in events} == {masking}
    assert {event["sidecar_id"] for event in events} == {None, "sidecar-1"}
    if not masking:
        assert found(spooled) == found(everything) == found(shown) == set(PERSONAL)
        return
    assert found(spooled) == found(everything + written(tmp_path)) == found(shown) == set()
    assert {event["user_id"] for event in events} >= {"[EMAIL]", "[PHONE]", "token=[SECRET]"}
    assert (
        "of [EMAIL]; of [PHONE]; of [IBAN]; of [CARD]; of [NATIONAL_ID]; of [IP]; password=[SECRET]"
    ) in {event["query"] for event in events}
    (action,) = lineage["actions"]
    assert action["action_type"] == "to [EMAIL]"
    assert action["detail"]["deep"] == [{"to": ["[EMAIL]"]}]
    assert (action["detail"]["password"], action["detail"]["card"]) == ("[SECRET]", "[CARD]")
