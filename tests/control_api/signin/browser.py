"""A browser without a page: it follows redirects by hand, keeps cookies, and fills in the form of
the provider. `requests` is that client; what it does not do is SameSite and CSP."""

from __future__ import annotations

import html
import re
from urllib.parse import urljoin

import requests

_ACTION = re.compile(r'<form[^>]* action="([^"]+)"')


class Browser:
    """`ca` are the authorities of a provider with TLS."""

    def __init__(self, ca: str | bool = True) -> None:
        self.session = requests.Session()
        self.session.verify = ca
        self.session.trust_env = False

    def get(self, url: str) -> requests.Response:
        return self.session.get(url, allow_redirects=False, timeout=30)

    def sign_in(self, url: str, person: str, until: str) -> str:
        """Goes to `url` at the provider, signs in there as `person`, and returns the address below
        `until` that the provider sends the browser to, without going there."""
        answer = self.get(url)
        for _ in range(10):
            while answer.is_redirect:
                where = urljoin(answer.url, answer.headers["Location"])
                if where.startswith(until):
                    return where
                answer = self.get(where)
            found = _ACTION.search(answer.text)
            assert found, (answer.status_code, answer.text[:2000])
            form = {"prompt": "login", "login": person, "password": "any"}
            action = urljoin(answer.url, html.unescape(found[1]))
            answer = self.session.post(action, data=form, allow_redirects=False, timeout=30)
        raise AssertionError("the provider sends the browser in a circle")
