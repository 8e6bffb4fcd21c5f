"""A plugin of pytest for the processes that run other people's suites: writes each test's outcome
to a file, keeps Hypothesis short, and sends the administration of a Chroma server straight to it.

The suites reset the server and make databases before each test, which a sidecar denies whatever the
policies say. `SUITE_OUTCOMES` is the file, one line of JSON a test; `SUITE_SERVER` is the server's
port, without which nothing is sent elsewhere.
"""

import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import httpx
import hypothesis
import pytest

ADMINISTRATION = re.compile(
    r"POST /api/v2/reset|POST /api/v2/tenants|(GET|POST) /api/v2/tenants/[^/]+/databases"
    r"|DELETE /api/v2/tenants/[^/]+/databases/[^/]+"
)

# Chroma's `conftest.py` imports the former server in Python, which needs FastAPI, and starts it
# only where no server is given.
sys.modules["chromadb.server.fastapi"] = ModuleType("chromadb.server.fastapi")

_OUTCOMES = Path(os.environ["SUITE_OUTCOMES"])
_SERVER = os.environ.get("SUITE_SERVER")


# Of the examples and steps that the suites draw, these many show what a sidecar changes.
hypothesis.settings.register_profile(
    "suite",
    deadline=None,
    max_examples=3,
    stateful_step_count=10,
    suppress_health_check=list(hypothesis.HealthCheck),
)


def pytest_configure() -> None:
    """Put the detour into both of httpx's transports."""
    if _SERVER is None:
        return
    port = int(_SERVER)
    plain = httpx.HTTPTransport.handle_request
    async_plain = httpx.AsyncHTTPTransport.handle_async_request

    def handle_request(self: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        return plain(self, _directed(request, port))

    async def handle_async_request(
        self: httpx.AsyncHTTPTransport, request: httpx.Request
    ) -> httpx.Response:
        return await async_plain(self, _directed(request, port))

    httpx.HTTPTransport.handle_request = handle_request  # type: ignore[method-assign]
    httpx.AsyncHTTPTransport.handle_async_request = (  # type: ignore[method-assign]
        handle_async_request
    )


def _directed(request: httpx.Request, port: int) -> httpx.Request:
    if ADMINISTRATION.fullmatch(f"{request.method} {request.url.path}"):
        request.url = request.url.copy_with(port=port)
    return request


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how the test went, and if it failed, the last line of its reason."""
    if report.when != "call" and report.passed:
        return
    text = report.longreprtext.strip().splitlines()
    with _OUTCOMES.open("a") as file:
        json.dump([report.nodeid, report.outcome, text[-1] if text else ""], file)
        file.write("\n")
