"""How long pods that start at once take to enrol, and how soon the keys of a suspended agent die.

    python -m tests.benchmarks.enrolment [PODS]

The control API runs on one core, on SQLite. Every pod is a connection of its own with its own
token; the same number of evaluations by one key is the floor. About half a minute.
"""

import asyncio
import sys
import time
from typing import Any

import aiohttp

from tests.benchmarks.measure import EVALUATE, SERVER, Figure, directory
from tests.support.clusters import ISSUER, pod_token, serving_keys
from tests.support.stack import Stack

ENROL = "/v1/sidecars/enrol"
PODS, ACCOUNTS = 500, 20
LIMIT = 10.0
"""Seconds for 500 pods."""
POLICY_SET = "/v1/sidecars/policy-set?since=0"


async def together(stack: Stack, path: str, bodies: list[Any], key: str = "") -> tuple[float, Any]:
    """The seconds until the last of the requests that start together is answered, and the
    answers."""
    url = f"http://127.0.0.1:{stack.control.port}{path}"
    headers = {"X-API-Key": key} if key else {}
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def one(body: Any) -> Any:
            async with session.post(url, json=body) as answer:
                assert answer.status == 200, await answer.text()
                return await answer.json()

        started = time.monotonic()
        answers = await asyncio.gather(*(one(body) for body in bodies))
        return time.monotonic() - started, answers


def register(stack: Stack) -> None:
    for number in range(ACCOUNTS):
        workload = f"{ISSUER}:system:serviceaccount:lending:a{number}"
        body = {"agent_id": f"agt_{number}", "agent_role": stack.role, "workload": workload}
        stack.admin("POST", "/v1/agents", body)
        for status in ("pending_approval", "approved"):
            stack.admin("PATCH", f"/v1/agents/agt_{number}/status", {"status": status})


def kill_switch(stack: Stack, key: str) -> float:
    """Seconds from the request that suspends an agent until a key of its pods is refused."""
    started = time.monotonic()
    stack.admin("PATCH", "/v1/agents/agt_0/status", {"status": "suspended"})
    headers = {"X-API-Key": key}
    url = f"http://127.0.0.1:{stack.control.port}{POLICY_SET}"

    async def refused() -> None:
        async with aiohttp.ClientSession(headers=headers) as session:
            while True:
                async with session.get(url) as answer:
                    if answer.status == 403:
                        return

    asyncio.run(refused())
    return time.monotonic() - started


def figures(pods: int) -> list[Figure]:
    tokens = [
        {"token": pod_token(f"a{number % ACCOUNTS}", pod=f"pod-{number}")} for number in range(pods)
    ]
    with directory() as made, serving_keys() as keys:
        stack = Stack(made, control_cores=SERVER)
        stack.control.environ["SLUICE_ENROL_ISSUERS"] = f"{ISSUER}={keys.url}"
        try:
            stack.start_control()
            stack.prepare()
            register(stack)
            floor, _ = asyncio.run(together(stack, EVALUATE, [stack.ask()] * pods, stack.agent_key))
            ours, answers = asyncio.run(together(stack, ENROL, tokens))
            again, _ = asyncio.run(together(stack, ENROL, tokens))
            killed = kill_switch(stack, answers[0]["sidecar_key"])
            assert stack.verify()["valid"]
        finally:
            stack.control.stop()
    allowed = LIMIT * pods / PODS
    value = f"{ours:.2f} s ({pods / ours:,.0f}/s), again {again:.2f} s"
    against = f"{ours:.2f} s against {floor:.2f} s"
    return [
        Figure(f"{pods} pods enrol at once", value, ours / allowed, "<= 1", ours <= allowed),
        Figure("the same, beside as many evaluations", against, ours / floor, "", reached=True),
        Figure("suspended, keys refused", f"{killed * 1e3:.0f} ms", killed, "<= 1", killed <= 1),
    ]


if __name__ == "__main__":
    for figure in figures(int(sys.argv[1]) if sys.argv[1:] else PODS):
        print(figure.row(), flush=True)
