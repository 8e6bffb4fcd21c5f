"""Says whether a request is for the console by one of its own names. With SLUICE_CONSOLE_URL, that
is the URL's host alone, so that a cookie of another host opens nothing. Knows no page.

A page on the web can make its own name resolve to this service (DNS rebinding). Browsers then take
its answers for that page's; the name stays in `Host`.
"""

import hmac
import re
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from aiohttp import web

from policies.ground.errors import Forbidden

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE).fullmatch


def require_own_host(request: web.BaseRequest, public: str | None) -> None:
    """Refuses a request for another host than that of `public` (SLUICE_CONSOLE_URL); without it,
    for another than loopback or the address at which the connection arrived. Raises `Forbidden`."""
    hosts = request.headers.getall("Host", ())
    if len(hosts) != 1 or not _is_own(hosts[0], public, _local_address(request)):
        raise Forbidden(
            "this is not the address of the console. Where SLUICE_CONSOLE_URL is set, as `sluice "
            "up` does, the console is there alone, since browsers send a host's cookies to every "
            "port of it. The address is printed at the start; `console-host` in the data directory "
            "has the name. Otherwise SLUICE_CONSOLE_URL must be the address that browsers see, and "
            "a proxy must pass their `Host` on"
        )


def _is_own(text: str, public: str | None, local: str | None) -> bool:
    found = _HOST(text)
    if found is None:
        return False
    host = _canonical(found[1])
    if public is not None:
        # The name may be a secret; the comparison must not tell how much of it was right.
        own = _canonical(urlsplit(public).hostname or "")
        return hmac.compare_digest(host.encode(), own.encode())
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback or (local is not None and host == _canonical(local))
    except ValueError:
        return False


def _canonical(host: str) -> str:
    """Lower case, without a final dot; an address in its shortest form, without brackets."""
    name = host.lower().removesuffix(".").strip("[]").partition("%")[0]
    try:
        address = ip_address(name)
    except ValueError:
        return name
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return str(address)


def _local_address(request: web.BaseRequest) -> str | None:
    transport = request.transport
    name = None if transport is None else transport.get_extra_info("sockname")
    return str(name[0]) if isinstance(name, tuple) else None
