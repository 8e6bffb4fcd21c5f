"""A control API inside the pod: `python -m … PORT`. For each line of input it prints a line of
JSON: `[why the sidecar says that it refuses, its decisions so far]`. Knows no expectation."""

import asyncio
import json
import sys

import uvloop

from tests.support.fake_control_api import FakeControlApi, policy


async def serve(port: int) -> None:
    control = FakeControlApi()
    control.port = port
    control.create_tenant(
        policy(allowed_sources=("rest://*", "tcp://*"), denied_sources=("rest://kb/secret",))
    )
    await control.start()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        decisions = [
            [
                each["pub"]["response"]["decision"],
                each["pub"]["response"]["policy_name"],
                each["pub"]["request"]["source_id"],
            ]
            for each in control.records
            if each["kind"] == "decision"
        ]
        refusing = control.reports[-1]["refusing"] if control.reports else None
        print(json.dumps([refusing, decisions]), flush=True)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
