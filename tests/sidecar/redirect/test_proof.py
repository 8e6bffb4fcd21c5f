"""What the proof makes of the kernel's table of connections."""

import socket
from contextlib import ExitStack
from typing import Any

import pytest

from sidecar.redirect import proof

SIDECAR, OTHER = 20102, 1000


class Plan:
    sidecar_user = SIDECAR
    port = 8712


@pytest.mark.parametrize("before", [[None], [OTHER, None, 0]])
def test_the_proof_recognises_its_own_connection_by_the_port(
    monkeypatch: pytest.MonkeyPatch, before: list[int | None]
) -> None:
    seen: dict[tuple[str, int], int | None] = {}

    def owner(peer: tuple[str, int], port: int, version: int) -> int | None:
        assert (port, version) == (8712, 4)
        return seen.setdefault(peer, [*before, SIDECAR][len(seen)])

    monkeypatch.setattr(proof, "owner_of_accepted", owner)
    monkeypatch.setattr(proof, "_PAUSE", 0)
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as stack:
        plan: Any = Plan
        trial = proof.TcpTrial(plan, 4, listening.getsockname())
        proof.expect_sidecar(stack, trial, trial.connect(stack))
    assert list(seen.values()) == [*before, SIDECAR]


def test_a_listener_of_another_user_is_never_the_sidecar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "owner_of_accepted", lambda *_: OTHER)
    monkeypatch.setattr(proof, "_PAUSE", 0)
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as stack:
        plan: Any = Plan
        trial = proof.TcpTrial(plan, 4, listening.getsockname())
        with pytest.raises(proof.NotProven, match="not by a process of user 20102"):
            proof.expect_sidecar(stack, trial, trial.connect(stack))
