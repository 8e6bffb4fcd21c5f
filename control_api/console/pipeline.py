"""Serves every request below `/console`, step by step, and passes the others to the API's pipeline.

    host > session > page > scope > form and its token > view > response

The console answers only under its own host name, as a defence against DNS rebinding: a page on the
web can make its own name resolve to this service, and browsers then treat our answers as that
page's. But the request's `Host` still has the foreign name.
"""

import hmac
import re
from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from urllib.parse import parse_qsl, urlencode

import orjson
from aiohttp import web

from control_api.audit.verification_operations import show_verification
from control_api.console.page import (
    ROOT,
    Answer,
    Console,
    Form,
    HtmlPage,
    JsonAnswer,
    Page,
    PageRedirect,
    SignedIn,
    Visit,
)
from control_api.console.sessions import ConsoleSessions, presented_cookie
from control_api.console.static import Renderer, StaticFiles
from control_api.edge.answers import JSON, HttpReply, render_error, render_result
from control_api.edge.request_shell import RequestInfo, RequestShell, read_body
from control_api.edge.route import query_fields
from control_api.edge.router import Bundles, NoSuchMethod
from control_api.edge.server import RequestHandler
from control_api.tenants.operations import show_freeze
from policies.ground.errors import Forbidden, Malformed, NotFound, SluiceError, Unauthorized

MAX_FIELDS = 512
_TYPE = "application/x-www-form-urlencoded"


def read_form(body: bytes, content_type: str | None) -> Form:
    """Read the fields of a form. Raises `Malformed` if the body is not a form in UTF-8."""
    kind, _, parameters = (content_type or "").partition(";")
    if kind.strip().lower() != _TYPE:
        raise Malformed(f"a form of the console is sent as `{_TYPE}`")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if charset not in ("", "utf-8"):
        raise Malformed("a form of the console is sent in UTF-8")
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except UnicodeDecodeError:
        raise Malformed("the form is not UTF-8") from None
    except ValueError:
        raise Malformed(f"the form has more than {MAX_FIELDS} fields") from None
    if any("\x00" in name or "\x00" in value for name, value in pairs):
        raise Malformed("the form contains a NUL character")
    # Browsers end the lines of a text field by CR and LF, whatever was typed.
    return Form([(name, value.replace("\r\n", "\n")) for name, value in pairs])


def is_secure(request: web.BaseRequest, public: str | None) -> bool:
    """Return whether the browser sees the console by HTTPS. `public` is SLUICE_CONSOLE_URL. Headers
    such as `X-Forwarded-Proto` are ignored, since anyone may send them."""
    return public.startswith("https:") if public is not None else request.secure


def require_own_origin(request: web.BaseRequest, public: str | None) -> None:
    """Refuse a form that another site sent in the visitor's name. Raises `Forbidden`.

    Every browser of today sends `Origin` with a form, and over HTTPS and on loopback also
    `Sec-Fetch-Site`. Without either header the form's site is unknown, and the form is refused.
    """
    site, origins = request.headers.get("Sec-Fetch-Site"), request.headers.getall("Origin", ())
    if site is None and not origins:
        raise Forbidden(
            "this form does not say where it comes from: its header `Origin` is missing"
        )
    own = public or f"{'https' if request.secure else 'http'}://{request.headers.get('Host', '')}"
    if site not in (None, "same-origin") or any(each != own.lower() for each in origins):
        raise Forbidden(
            "this form was sent from another site. If this is our own, behind a proxy, "
            "SLUICE_CONSOLE_URL must be the address that browsers see"
        )


def is_led_from_elsewhere(request: web.BaseRequest) -> bool:
    """Return whether a link on another site led here. In that case browsers do not send the
    session's cookie, which is `SameSite=Strict`."""
    return request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE).fullmatch


def require_own_host(request: web.BaseRequest, own: str | None) -> None:
    """Refuse a request for another host than `own`, and every request if that is None. Raises
    `Forbidden`."""
    if own is None:
        raise Forbidden(
            "the console has no address yet: by TLS it needs SLUICE_CONSOLE_URL, the address that "
            "browsers see, with a host on which nothing else listens"
        )
    hosts = request.headers.getall("Host", ())
    if len(hosts) != 1 or not _is_own(hosts[0], own):
        raise Forbidden(
            "this is not the address of the console. It is under one host alone, since browsers "
            "send a host's cookies to every port of it. That host is SLUICE_CONSOLE_URL's, which "
            "must be the address that browsers see, and a proxy must pass their `Host` on. Without "
            "the setting it is the name in the file `console-host` in the data directory, on this "
            "machine alone; `sluice up` prints it, and so does a sign-in link"
        )


def _is_own(text: str, own: str) -> bool:
    found = _HOST(text)
    # The name may be a secret; the comparison must not tell how much of it was right.
    return found is not None and hmac.compare_digest(
        _canonical(found[1]).encode(), _canonical(own).encode()
    )


def _canonical(host: str) -> str:
    """Return a host in lower case without a final dot, and an IP address in its shortest form."""
    name = host.lower().removesuffix(".").strip("[]").partition("%")[0]
    try:
        address = ip_address(name)
    except ValueError:
        return name
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return str(address)


HTML = "text/html; charset=utf-8"
SIGN_IN = f"{ROOT}/sign-in"
_STATIC = f"{ROOT}/static/"
_HEADERS = {
    # Nothing is loaded from elsewhere, nothing inline runs, and no script makes markup from text.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_VISIT = web.RequestKey("visit", Visit)
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}


class ConsolePipeline:
    """Serves the console's pages, and passes every other request on to `api`. `sessions` is given
    to the views that begin and end one."""

    def __init__(
        self,
        pages: Iterable[Page],
        console: Console,
        bundles: Bundles,
        sessions: ConsoleSessions,
        api: RequestHandler,
        shell: RequestShell,
    ) -> None:
        self._pages: dict[tuple[str, str], Page] = {
            (page.method, page.path): page for page in pages
        }
        self._console = console
        self._bundles = bundles
        self._sessions = sessions
        self._api = api
        self._shell = shell
        self._static = StaticFiles()
        self._renderer = Renderer(self._static)
        self.response = shell.response
        self.new_request_id = shell.new_request_id

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            return await self._api(request)
        return await self._shell.answer(request, self._serve, self._refused)

    async def _serve(self, request: web.BaseRequest, info: RequestInfo) -> HttpReply:
        path, _, query = info.target.partition("?")
        require_own_host(request, self._console.address.host)
        if path.startswith(_STATIC):
            info.operation = "console_static"
            found = self._static.find(path)
            return HttpReply(200, found.body, found.content_type, {**_HEADERS, **_FOREVER})
        visit = await self._visit(request, path, query)
        # What is refused from here on is shown with the navigation.
        request[_VISIT] = visit
        page = self._page(info.method, path)
        info.operation = page.name
        who = visit.who
        if page.scopes is not None:
            if who is None:
                return self._to_sign_in(request, info.target)
            if who.caller.scope not in page.scopes:
                raise Forbidden(f"this page needs the scope {' or '.join(sorted(page.scopes))}")
        if page.method == "POST":
            require_own_origin(request, self._console.address.public)
            body = await read_body(request, page.max_body)
            form = read_form(body, request.headers.get("Content-Type"))
            _require_token(form, who)
            visit = replace(visit, form=form)
        try:
            answer = await page.view(visit)
        except SluiceError as error:
            if page.again is None:
                raise
            answer = await page.again(visit, error)
        return await self._reply(answer, visit)

    async def _visit(self, request: web.BaseRequest, path: str, query: str) -> Visit:
        secure = is_secure(request, self._console.address.public)
        cookies = request.headers.getall("Cookie", ())
        who = await self._sessions.find(presented_cookie(cookies, secure=secure))
        return Visit(
            console=self._console,
            bundles=self._bundles,
            path=path,
            query=query_fields(query),
            headers=request.headers,
            cookies=cookies,
            remote=request.remote or "",
            secure=secure,
            who=who,
            sessions=self._sessions,
        )

    def _page(self, method: str, path: str) -> Page:
        page = self._pages.get(("GET" if method == "HEAD" else method, path))
        if page is not None:
            return page
        allowed = [each for each, known in self._pages if known == path]
        if allowed:
            raise NoSuchMethod(allowed)
        raise NotFound("the console has no such page")

    def _to_sign_in(self, request: web.BaseRequest, target: str) -> HttpReply:
        if request.method not in ("GET", "HEAD") or not _wants_page(request):
            raise Unauthorized("the session has ended: sign in again")
        location = f"{SIGN_IN}?{urlencode({'to': target})}"
        if is_led_from_elsewhere(request):
            # The browser has kept the cookie back. It sends it with what a page of ours asks for.
            visit = Visit(self._console, self._bundles, SIGN_IN, {})
            body = self._renderer.page("enter.html", {"to": location}, visit)
            return HttpReply(HTTPStatus.OK, body, HTML, dict(_HEADERS))
        return HttpReply(
            HTTPStatus.SEE_OTHER, b"", "text/plain", {**_HEADERS, "Location": location}
        )

    async def _reply(self, answer: Answer, visit: Visit) -> HttpReply:
        if isinstance(answer, HtmlPage):
            # Every page says so, whatever it shows: lists and counts depend on the log.
            freeze = await visit.call(show_freeze) if visit.may_call(show_freeze) else None
            check = (
                await visit.call(show_verification) if visit.may_call(show_verification) else None
            )
            common = {"problem": answer.problem, "freeze": freeze, "log_check": check}
            body = self._renderer.page(answer.template, {**answer.values, **common}, visit)
            implied = HTTPStatus.OK if answer.problem is None else answer.problem.status
            headers = {**_HEADERS, **answer.headers}
            return HttpReply(answer.status or implied, body, HTML, headers)
        if isinstance(answer, PageRedirect):
            headers = {**_HEADERS, **answer.headers, "Location": answer.location}
            return HttpReply(HTTPStatus.SEE_OTHER, b"", "text/plain", headers)
        if isinstance(answer, JsonAnswer):
            return HttpReply(answer.status, orjson.dumps(answer.value), JSON, dict(_HEADERS))
        reply = render_result(answer, HTTPStatus.OK, visit.path)
        return reply._replace(headers={**_HEADERS, **reply.headers})

    def _refused(self, error: SluiceError, request: web.BaseRequest) -> HttpReply:
        if not _wants_page(request):
            reply = render_error(error)
            return reply._replace(headers={**_HEADERS, **reply.headers})
        path = request.raw_path.partition("?")[0]
        visit = request.get(_VISIT) or Visit(self._console, self._bundles, path, {})
        phrase = HTTPStatus(error.status).phrase
        values = {"problem": error, "phrase": phrase, "freeze": None, "log_check": None}
        body = self._renderer.page("problem.html", values, visit)
        headers = {**_HEADERS, **getattr(error, "headers", {})}
        return HttpReply(error.status, body, HTML, headers)


def _wants_page(request: web.BaseRequest) -> bool:
    """Return whether a person waits for the answer, rather than one of our scripts."""
    return "text/html" in request.headers.get("Accept", "text/html")


def _require_token(form: Form, who: SignedIn | None) -> None:
    """Raise `Forbidden` if the form was not made for this session, according to its token."""
    if who is not None and not who.visitor.token.made_form(form.get("csrf", "")):
        raise Forbidden("this form belongs to another session: load the page again")
