"""A short label of a browser, by which people recognise their own sessions. Knows a few names, and
nothing else of the header: what it returns is from a closed set, whatever was sent."""

_BROWSERS = (
    # Most browsers also claim to be those further down.
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrom", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iOS"),
    ("iPad", "iOS"),
    ("Windows", "Windows"),
    ("Mac OS", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def browser_label(user_agent: str) -> str:
    """`Firefox on Linux`, for a header `User-Agent`."""
    browser = _first(_BROWSERS, user_agent, "another browser")
    system = _first(_SYSTEMS, user_agent, "")
    return f"{browser} on {system}" if system else browser


def _first(names: tuple[tuple[str, str], ...], text: str, default: str) -> str:
    return next((label for part, label in names if part in text), default)
