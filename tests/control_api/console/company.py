"""A company whose people sign in to the console with accounts that they have already: a control API
and a real identity provider. Knows no page beside those of sign-in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.control_api.console.reader import Shown, Visitor
from tests.control_api.signin.browser import Browser
from tests.control_api.signin.real_provider import SECRET, RealProvider
from tests.support.control_api import ControlApi
from tests.support.ports import free_port

ADMINS, AUDITORS = "sluice-admins=admin@default", "sluice-auditors=read@default"
GROUPS = f"{ADMINS},{AUDITORS},sluice-operators=superadmin"
COOKIE, ATTEMPT = "sluice_console", "sluice_console_oidc"


class Company:
    """A control API on a fixed port, the provider of its people, and what both have logged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.provider = RealProvider(folder)
        self.provider.add_client(f"{self.url}/console/oidc/callback")
        self.provider.start()
        secret = folder / "client-secret"
        secret.write_text(SECRET + "\n")
        self.api = ControlApi(
            folder / "api",
            SLUICE_CONTROL_LISTEN=f"127.0.0.1:{port}",
            SLUICE_CONSOLE_URL=self.url,
            SLUICE_OIDC_ISSUER=self.provider.issuer,
            SLUICE_OIDC_CLIENT_ID="sluice",
            SLUICE_OIDC_CLIENT_SECRET_FILE=str(secret),
            SLUICE_OIDC_GROUPS=GROUPS,
        ).start()

    def restart(self, **environ: str) -> None:
        self.api.stop()
        self.api.environ.update(environ)
        self.api.start()

    def answer(self, visitor: Visitor, person: str, to: str = "", start: str = "") -> str:
        """The address of ours that the provider sends the browser of `person` to."""
        began = visitor.get(start or f"/console/oidc{to and f'?to={to}'}", follow=False)
        assert began.status == 303, began.text
        where = began.headers["Location"]
        assert where.startswith(self.provider.issuer)
        return Browser().sign_in(where, person, self.url).removeprefix(self.url)

    def arrive(self, person: str, to: str = "") -> tuple[Visitor, Shown]:
        visitor = Visitor(self.api)
        return visitor, visitor.get(self.answer(visitor, person, to), Sec_Fetch_Site="cross-site")

    def sign_in(self, person: str) -> Visitor:
        visitor, shown = self.arrive(person)
        assert shown.status == 200, shown.text
        assert COOKIE in visitor.cookies, shown.text
        return visitor

    def stop(self) -> None:
        self.api.stop()
        self.provider.stop()


@contextmanager
def founded(folder: Path) -> Iterator[Company]:
    made = Company(folder)
    try:
        yield made
    finally:
        made.stop()
