"""Says whether a request came from our own pages. Knows no page."""

from aiohttp import web

from policies.ground.errors import Forbidden


def is_secure(request: web.BaseRequest, public: str | None) -> bool:
    """Whether the browser sees the console by HTTPS. `public` is SLUICE_CONSOLE_URL; headers such
    as `X-Forwarded-Proto` are not asked, since anyone may send them."""
    return public.startswith("https:") if public is not None else request.secure


def require_own_origin(request: web.BaseRequest, public: str | None) -> None:
    """Refuses a form that another site sent in the visitor's name. Raises `Forbidden`.

    Every browser of today sends `Origin` with a form, and over HTTPS and on loopback also
    `Sec-Fetch-Site`. Without either it is not known where the form was, and it is refused.
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
    """Whether a link on another site leads here: browsers then send no `SameSite=Strict` cookie."""
    return request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
