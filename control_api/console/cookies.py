"""The cookies of a session, and of an attempt to sign in by OpenID Connect. Knows no session."""

from collections.abc import Iterable

SESSION = "sluice_console"
ATTEMPT = "sluice_console_oidc"


def cookie_name(plain: str = SESSION, *, secure: bool) -> str:
    """The cookie's whole name. Browsers accept `__Host-` by HTTPS alone, for the whole host, and
    from no other host of the domain (RFC 6265bis, section 4.1.3)."""
    return f"__Host-{plain}" if secure else plain


def presented_cookie(headers: Iterable[str], plain: str = SESSION, *, secure: bool) -> str | None:
    """The value among these `Cookie` headers. None without one, or with several: then another
    host of the domain, or an earlier path, has set one, and none of them can be trusted."""
    wanted = cookie_name(plain, secure=secure)
    found = []
    for header in headers:
        for pair in header.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == wanted:
                found.append(value)
    return found[0] if len(found) == 1 else None


def session_cookie(value: str, *, secure: bool) -> str:
    """The `Set-Cookie` header of a session that begins. It has no `Max-Age`: the server knows when
    the session ends."""
    return f"{cookie_name(secure=secure)}={value}; {_attributes(secure=secure)}"


def attempt_cookie(value: str, seconds: int, *, secure: bool) -> str:
    """The `Set-Cookie` header of an attempt. `Lax`, since the identity provider is another site,
    and its answer must come with this cookie."""
    name, end = cookie_name(ATTEMPT, secure=secure), "; Secure" if secure else ""
    return f"{name}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax{end}"


def no_cookie(*, secure: bool) -> str:
    """The `Set-Cookie` header of a session that ends."""
    return f"{cookie_name(secure=secure)}=; Max-Age=0; {_attributes(secure=secure)}"


def _attributes(*, secure: bool) -> str:
    return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
