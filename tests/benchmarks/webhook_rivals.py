"""What the admission webhook is held against, each a process of its own under uvloop and TLS.

    python -m tests.benchmarks.webhook_rivals PORT TLS_DIR echo    our server; sends the body back
    python -m tests.benchmarks.webhook_rivals PORT TLS_DIR plain   what most people write

`plain` is an aiohttp `Application` that parses with `json`, copies the pod, appends one small
container and answers with a patch that replaces the list. It checks nothing.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import ssl
import sys
from pathlib import Path

import uvloop
from aiohttp import web

from deploy.kubernetes.admission.server import BodyReader
from policies.ground.addresses import ListenAddress
from policies.ground.process.small_server import HEADERS, Handler, Listener


def echo() -> Handler:
    bodies = BodyReader()

    async def answer(request: web.BaseRequest) -> web.Response:
        bodies.reserve(request)
        return web.Response(body=await bodies.read(request), headers=HEADERS)

    return answer


async def plain(request: web.Request) -> web.Response:
    review = await request.json()
    pod = copy.deepcopy(review["request"]["object"])
    containers = [{"name": "sidecar", "image": "example/sidecar"}]
    containers += pod["spec"].get("initContainers", [])
    patch = [{"op": "add", "path": "/spec/initContainers", "value": containers}]
    response = {
        "uid": review["request"]["uid"],
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
    }
    return web.json_response(
        {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
    )


async def main(port: int, folder: Path, kind: str) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    if kind == "echo":
        address = ListenAddress("127.0.0.1", port)
        await Listener.open(address, "PORT", echo(), None, tls)
    else:
        app = web.Application()
        app.router.add_post("/inject/enabled", plain)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
