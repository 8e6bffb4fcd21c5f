"""A visitor of the console as tests have it: a client with a cookie that reads pages as a browser
does, by HTTP alone. Knows no page."""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlencode, urlsplit

from tests.support.control_api import ControlApi

_VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}


@dataclass
class Element:
    """An element of a page. `text` is that of all that it contains, with single spaces."""

    name: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        parts = (each if isinstance(each, str) else each.text for each in self.children)
        return " ".join(" ".join(parts).split())

    def find_all(self, tag: str, /, **attributes: str) -> list[Element]:
        """Every element below this one with this name and these attributes (`class_` contains)."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                if child.name == tag and child.has(attributes):
                    found.append(child)
                found += child.find_all(tag, **attributes)
        return found

    def find(self, tag: str, /, **attributes: str) -> Element:
        """The first of them. Raises `LookupError` without one."""
        found = self.find_all(tag, **attributes)
        if not found:
            raise LookupError(f"no <{tag}> with {attributes} in: {self.text[:500]}")
        return found[0]

    def has(self, wanted: dict[str, str]) -> bool:
        """Whether it has these attributes."""
        return all(
            value in self.attributes.get("class", "").split()
            if name == "class_"
            else self.attributes.get(name.replace("_", "-")) == value
            for name, value in wanted.items()
        )


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag in (each.name for each in self._open[1:]):
            while self._open.pop().name != tag:
                pass

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


@dataclass
class Shown:
    """An answer of the console."""

    status: int
    headers: http.client.HTTPMessage
    raw: bytes
    address: str

    @property
    def page(self) -> Element:
        """The page, read."""
        builder = _Builder()
        builder.feed(self.raw.decode())
        return builder.root

    @property
    def main(self) -> Element:
        """The page's content, without its frame."""
        return self.page.find("main")

    @property
    def text(self) -> str:
        return self.main.text

    @property
    def heading(self) -> str:
        return self.main.find("h1").text


class Visitor:
    """A browser's part: keeps the cookie, follows redirects to our own pages, sends forms with
    their hidden fields. `host` is the name by which it calls; None for the console's own."""

    def __init__(
        self, api: ControlApi, tls: ssl.SSLContext | None = None, host: str | None = None
    ) -> None:
        self.host = host or urlsplit(api.console).netloc
        self.api = api
        self.tls = tls
        self.cookies: dict[str, str] = {}

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.host}"

    def _connected(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.api.port, timeout=30)
        return http.client.HTTPSConnection("127.0.0.1", self.api.port, timeout=30, context=self.tls)

    def sign_in(self, key: str) -> Visitor:
        """Sign in through the page, which must succeed."""
        shown = self.post("/console/sign-in", {"key": key}, follow=False)
        assert shown.status == 303, shown.text
        assert self.cookies, "no session began"
        return self

    def get(self, address: str, *, follow: bool = True, **headers: str) -> Shown:
        """The page at this address."""
        shown = self.send("GET", address, None, headers)
        if follow and shown.status == 303:
            return self.get(shown.headers["Location"])
        return shown

    def post(
        self,
        address: str,
        fields: dict[str, str] | list[tuple[str, str]],
        *,
        follow: bool = True,
        **headers: str,
    ) -> Shown:
        """Sends a form as it is given."""
        shown = self.send("POST", address, urlencode(fields).encode(), headers)
        if follow and shown.status == 303:
            return self.get(shown.headers["Location"])
        return shown

    def submit(self, shown: Shown, action: str, **fields: str) -> Shown:
        """Fill in and send the form with this action that a page contains, with its hidden fields
        and what its other fields hold."""
        forms = [
            form
            for form in shown.page.find_all("form")
            if urlsplit(form.attributes.get("action") or shown.address).path == action
        ]
        assert forms, f"no form for {action}: {shown.text[:500]}"
        held: list[tuple[str, str]] = []
        form = forms[0]
        for each in form.find_all("input"):
            name, kind = each.attributes.get("name"), each.attributes.get("type", "text")
            if name and (kind not in ("checkbox", "radio") or "checked" in each.attributes):
                held.append((name, each.attributes.get("value", "")))
        for each in form.find_all("textarea"):
            held.append((each.attributes["name"], "".join(map(str, each.children))))
        for each in form.find_all("select"):
            options = each.find_all("option")
            chosen = next((o for o in options if "selected" in o.attributes), options[0])
            held.append((each.attributes["name"], chosen.attributes.get("value", chosen.text)))
        pairs = [pair for pair in held if pair[0] not in fields] + list(fields.items())
        return self.post(form.attributes.get("action") or shown.address, pairs)

    def send(self, method: str, address: str, body: bytes | None, headers: dict[str, str]) -> Shown:
        """One request, as it is."""
        sent = {"Accept": "text/html"}
        if body is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
            sent["Origin"] = self.origin
        sent["Host"] = self.host
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = self._connected()
        try:
            connection.request(method, address, body, sent)
            answer = connection.getresponse()
            raw = answer.read()
        finally:
            connection.close()
        for cookie in answer.headers.get_all("Set-Cookie", []):
            name, _, rest = cookie.partition("=")
            value, _, attributes = rest.partition(";")
            if "max-age=0" in attributes.lower() or not value:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
        return Shown(answer.status, answer.headers, raw, address)
