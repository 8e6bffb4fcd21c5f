"""The pipeline that every request below `/console` passes.

    host > session > page > scope > form and its token > view > response

What is not below `/console` goes to the API's pipeline. Knows the table of pages, and no page.
"""

from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import urlencode

import orjson
from aiohttp import web

from control_api.app_context import AppContext
from control_api.console.cookies import presented_cookie
from control_api.console.form import read_form
from control_api.console.origin import is_led_from_elsewhere, is_secure, require_own_origin
from control_api.console.own_host import require_own_host
from control_api.console.page import ROOT, Answer, Data, Html, Page, See
from control_api.console.rendering import Renderer
from control_api.console.sessions import ConsoleSessions
from control_api.console.static import StaticFiles
from control_api.console.visit import Form, SignedIn, Visit
from control_api.http.bundles import Bundles
from control_api.http.call import query_fields
from control_api.http.reply import JSON, HttpReply, render_error, render_result
from control_api.http.request_body import read_body
from control_api.http.request_shell import RequestInfo, RequestShell
from control_api.http.router import NoSuchMethod
from control_api.http.server import RequestHandler
from control_api.responses.checkpoints import Verification
from control_api.use_cases.audit.verification import show_verification
from control_api.use_cases.tenants.freeze_tenant import show_freeze
from policies.ground.errors import Forbidden, NotFound, SluiceError, Unauthorized

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
    """Serves the pages, and passes everything else on to `api`. `sessions` is given to the views
    that begin and end one."""

    def __init__(
        self,
        pages: Iterable[Page],
        app: AppContext,
        bundles: Bundles,
        sessions: ConsoleSessions,
        api: RequestHandler,
        shell: RequestShell,
    ) -> None:
        self._pages: dict[tuple[str, str], Page] = {
            (page.method, page.path): page for page in pages
        }
        self._app = app
        self._bundles = bundles
        self._sessions = sessions
        self._api = api
        self._shell = shell
        self._static = StaticFiles()
        self._renderer = Renderer(self._static)
        self.response = shell.response
        self.new_request_id = shell.new_request_id

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to `request`, whatever happens."""
        path = request.raw_path.partition("?")[0]
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            return await self._api(request)
        return await self._shell.answer(request, self._serve, self._refused)

    async def _serve(self, request: web.BaseRequest, info: RequestInfo) -> HttpReply:
        path, _, query = info.target.partition("?")
        require_own_host(request, self._app.console.host)
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
            require_own_origin(request, self._app.console.public)
            body = await read_body(request, page.max_body)
            form = read_form(body, request.headers.get("Content-Type"))
            _require_token(form, who)
            visit = replace(visit, form=form)
        return await self._reply(await page.view(visit), visit)

    async def _visit(self, request: web.BaseRequest, path: str, query: str) -> Visit:
        """The visit, whose form is yet to be read."""
        secure = is_secure(request, self._app.console.public)
        cookies = request.headers.getall("Cookie", ())
        who = await self._sessions.find(presented_cookie(cookies, secure=secure))
        return Visit(
            app=self._app,
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
            visit = Visit(self._app, self._bundles, SIGN_IN, {})
            body = self._renderer.page("enter.html", {"to": location}, visit)
            return HttpReply(HTTPStatus.OK, body, HTML, dict(_HEADERS))
        return HttpReply(
            HTTPStatus.SEE_OTHER, b"", "text/plain", {**_HEADERS, "Location": location}
        )

    async def _reply(self, answer: Answer, visit: Visit) -> HttpReply:
        if isinstance(answer, Html):
            # Every page says so, whatever it shows.
            freeze = await visit.call(show_freeze) if visit.may(show_freeze) else None
            values = {**answer.values, "freeze": freeze, "log_check": await _log_check(visit)}
            body = self._renderer.page(answer.template, values, visit)
            return HttpReply(answer.status, body, HTML, {**_HEADERS, **answer.headers})
        if isinstance(answer, See):
            headers = {**_HEADERS, **answer.headers, "Location": answer.location}
            return HttpReply(HTTPStatus.SEE_OTHER, b"", "text/plain", headers)
        if isinstance(answer, Data):
            return HttpReply(answer.status, orjson.dumps(answer.value), JSON, dict(_HEADERS))
        reply = render_result(answer, HTTPStatus.OK, visit.path)
        return reply._replace(headers={**_HEADERS, **reply.headers})

    def _refused(self, error: SluiceError, request: web.BaseRequest) -> HttpReply:
        if not _wants_page(request):
            reply = render_error(error)
            return reply._replace(headers={**_HEADERS, **reply.headers})
        path = request.raw_path.partition("?")[0]
        visit = request.get(_VISIT) or Visit(self._app, self._bundles, path, {})
        phrase = HTTPStatus(error.status).phrase
        values = {"problem": error, "phrase": phrase, "freeze": None, "log_check": None}
        body = self._renderer.page("problem.html", values, visit)
        headers = {**_HEADERS, **getattr(error, "headers", {})}
        return HttpReply(error.status, body, HTML, headers)


async def _log_check(visit: Visit) -> Verification | None:
    """What the service's own verification of the log found: lists and counts depend on it."""
    if not visit.may(show_verification):
        return None
    found: Verification = await visit.call(show_verification)
    return found


def _wants_page(request: web.BaseRequest) -> bool:
    """Whether a person waits for the answer, and not a module of ours."""
    return "text/html" in request.headers.get("Accept", "text/html")


def _require_token(form: Form, who: SignedIn | None) -> None:
    """Raises `Forbidden` if the form is not one that this session was shown."""
    if who is not None and not who.visitor.token.made_form(form.get("csrf", "")):
        raise Forbidden("this form belongs to another session: load the page again")
