"""The page at `/docs`: complete, self-contained, and working in a real browser."""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64encode
from hashlib import sha256
from html import unescape
from importlib.resources import files
from pathlib import Path

import pytest

from control_api.edge.docs_page import inline, markdown, render_page
from control_api.edge.openapi import describe
from control_api.edge.openapi_responses import statuses
from control_api.routes import ROUTES
from policies import __version__
from tests.servers import need
from tests.support.browser_tabs import Tabs
from tests.support.browsing import watching
from tests.support.control_api import ControlApi

PAGE = render_page(describe(ROUTES, __version__))


def test_the_page_shows_every_operation_with_its_fields_and_errors(api: ControlApi) -> None:
    answer = api.call("GET", "/docs", key=None)
    assert answer.raw == PAGE.body
    text = answer.raw.decode()
    assert len(text) < 600_000  # characters; some 90 routes have 5,000 each
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
    assert (answer.status, answer.headers["Location"]) == (302, "console")


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
    script.write_text(files("control_api.edge").joinpath("docs.js").read_text())
    assert subprocess.run([need("node"), "--check", script], check=False).returncode == 0


DOM = """
const at = (id) => document.getElementById(id);
const classes = {}, heard = {}, sent = [];
const made = (id, more) => classes[id] = {
  id, value: "", hidden: true, textContent: "", dataset: {}, disabled: false,
  addEventListener(kind, told) { heard[`${id} ${kind}`] = told; }, ...more,
};
made("key"), made("search"), made("found");
const group = { hidden: false, items: [] };
const sections = ["rotate a key", "list sessions"].map((text, at) => {
  const section = made(`s${at}`, { textContent: text });
  group.items.push({ hidden: false, firstChild: { hash: `#s${at}` } });
  return section;
});
group.querySelectorAll = () => group.items;
globalThis.document = {
  getElementById: (id) => classes[id],
  querySelectorAll: (what) => ({ section: sections, ".group": [group] })[what] ?? [],
  addEventListener(kind, told) { heard[kind] = told; },
};
globalThis.addEventListener = (kind, told) => { heard[kind] = told; };
globalThis.fetch = async (target, options) => {
  sent.push([target, options]);
  return { text: async () => "{}", status: 200, statusText: "OK", headers: new Headers() };
};
%s
const field = (place, name, value) => ({ dataset: { in: place, name }, value });
const output = { hidden: true }, button = {};
const form = {
  dataset: { path: "/v1/agents/{agent_id}", method: "GET" },
  querySelectorAll: () => [
    field("path", "agent_id", "agt/../%%2F?#é"), field("query", "limit", "1"),
    field("query", "cursor", ""), field("header", "If-Match", "3"),
  ],
  querySelector: (what) => what === "output" ? output : button,
};
at("key").value = " slc_key ";
(async () => {
  heard.submit({ preventDefault() {}, target: form });
  while (output.textContent === undefined || output.textContent === "…")
    await new Promise(setImmediate);
  at("search").value = "Rotate";
  heard["search input"]();
  const shown = [at("found").textContent, ...sections.map((each) => each.hidden)];
  heard.pagehide();
  console.log(JSON.stringify({ sent, output: output.textContent, shown, key: at("key").value }));
})();
"""


def test_a_form_sends_what_was_filled_in_and_keeps_no_key() -> None:
    """The script's own work, against the little that it needs of a page."""
    script = files("control_api.edge").joinpath("docs.js").read_text()
    command = [str(need("node")), "-e", DOM % script]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    [[target, options]] = told["sent"]
    assert target == "./v1/agents/agt%2F..%2F%252F%3F%23%C3%A9?limit=1"
    assert (options["method"], options["credentials"]) == ("GET", "omit")
    assert options["headers"] == {"If-Match": "3", "X-API-Key": "slc_key"}
    assert told["output"].startswith("200 OK")
    assert told["shown"] == ["1 of 2 operations", False, True]
    assert told["key"] == ""
    # The page has what the script works on.
    page = PAGE.body.decode()
    for name in ("key", "search", "found"):
        assert page.count(f' id="{name}"') == 1
    assert page.count('<div class="tools" hidden>') == 1
    for route in ROUTES:
        assert f'<li><a href="#{route.name}">' in page
        section = page.partition(f'<section id="{route.name}">')[2].partition("</section>")[0]
        _, hidden, form = section.partition('<details class="try" hidden>')
        assert hidden
        assert f'<form data-method="{route.method}" data-path="{route.path}">' in form
        assert "<output hidden></output></form>" in form
        for place, names in (("path", route.parameters), ("query", route.query)):
            for name in names:
                assert f'data-in="{place}" data-name="{name}"' in form, route.name
        assert ('data-in="body"' in form) == bool(route.body), route.name


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


@pytest.mark.deep(stands_in="test_a_form_sends_what_was_filled_in_and_keeps_no_key")
async def test_a_reader_searches_and_tries_operations_in_a_browser(
    api: ControlApi, tabs: Tabs
) -> None:
    async with watching(tabs, f"http://127.0.0.1:{api.port}") as watched:
        watched.faults.expect("favicon.ico")  # the page loads nothing, and has no icon
        page = await watched.page()
        await page.goto("/docs")
        assert await page.evaluate("document.querySelector('details.try').hidden") is False

        # Without a key the service says so; with one, the list comes. The key isn't shown.
        for status in ("401", "422"):
            watched.faults.expect(f"status {status}")
            watched.faults.expect(f"with a status of {status}")
        assert "401" in await page.evaluate(sending("list_keys"))
        await page.fill("#key", api.admin_key)
        listed = await page.evaluate(sending("list_keys", limit="1"))
        assert listed.startswith("200")
        assert '"key_id"' in listed

        made = await page.evaluate(sending("create_key", body='{"name": "tried", "scope": "read"}'))
        assert made.startswith("201")
        assert "X-Sluice-Revision: " in made
        assert any(key["name"] == "tried" for key in api.admin("GET", "/v1/keys"))

        odd = "agt/../%2F?#é"
        api.admin("POST", "/v1/agents", {"agent_role": "support", "agent_id": odd})
        found = await page.evaluate(sending("get_agent", agent_id=odd))
        assert json.loads(found.partition("\n\n")[2])["agent_id"] == odd
        assert "422" in await page.evaluate(sending("list_keys", limit="0"))

        await page.fill("#search", "freshness no such word")
        assert (await page.inner_text("#found")).startswith("0 of ")
        await page.fill("#search", "rotate")
        left = ",".join(await page.locator("nav li:not([hidden])").all_text_contents())
        assert "/v1/keys/{key_id}/rotate" in left
        assert "/v1/sessions" not in left

        # Nothing keeps the key: no storage, no cookie, no address.
        stores = "[{...localStorage}, {...sessionStorage}, document.cookie, location.href]"
        assert api.admin_key not in await page.evaluate(f"JSON.stringify({stores})")
        await page.goto("/health")
        await page.go_back()
        assert page.url.endswith("/docs")
        assert await page.input_value("#key") == ""
