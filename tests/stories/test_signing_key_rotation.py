"""The log's key is rotated: sidecars that pinned the old one follow, and nothing is lost."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from typing import Any

from tests.stack import ROOT, Stack, call, wait_until


def rotate(stack: Stack) -> None:
    subprocess.run(
        [sys.executable, "-m", "control_api", "rotate-key"],
        cwd=ROOT,
        env={**os.environ, **stack.control.environ},
        check=True,
        capture_output=True,
        timeout=60,
    )


def figure(stack: Stack, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", stack.sidecar.port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def all_signed_for(stack: Stack) -> None:
    """A sidecar forgets what is signed for by a key that it believes, and nothing else."""
    wait_until("receipts are believed", lambda: figure(stack, "sluice_spool_records") == 0)


def allowed(stack: Stack, **changed: Any) -> bool:
    status, answer = stack.evaluate(**changed)
    assert status == 200, answer
    return bool(answer["decision"] == "ALLOW")


def test_a_rotation_is_followed_by_a_sidecar_that_runs(either_way: Stack) -> None:
    stack = either_way
    assert allowed(stack)
    all_signed_for(stack)
    rotate(stack)
    assert stack.control.stop() == 0
    # Decided while nobody can sign for it.
    assert allowed(stack)
    stack.start_control()
    all_signed_for(stack)
    stack.policy_file.write_text(stack.policies.replace("handbook, ", ""))
    wait_until("the change is in force", lambda: not allowed(stack))
    all_signed_for(stack)
    assert stack.verify()["valid"]
    assert len(stack.admin("GET", "/v1/sidecars/policy-set")["log_key_history"]) == 1


def test_a_sidecar_that_was_down_for_two_rotations_follows_both(either_way: Stack) -> None:
    stack = either_way
    assert allowed(stack)
    stack.sidecar.stop()
    rotate(stack)
    rotate(stack)
    stack.control.stop()
    stack.start_control()
    stack.sidecar.start()
    assert allowed(stack)
    all_signed_for(stack)
    assert call(stack.sidecar.port, "GET", "/health/ready")[0] == 200
    assert stack.verify()["valid"]
