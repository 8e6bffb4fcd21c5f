"""The errors that reach a caller. All derive from `SluiceError` and have the same form of body.

A class holds the status, and its docstring is the default message (`CONTRACT.md`, Errors).

Also puts an error of the operating system into words: the name of its number, and its meaning.
"""

import errno
import os
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar

import orjson


def error_body(status: int, message: str, details: str | None = None) -> dict[str, object]:
    """Return an error's JSON body `{error, message, code, details?}`: `error` is the reason phrase,
    `code` the status. `details` is left out if it is None."""
    # `details` is absent rather than null, as `CONTRACT.md`, Errors, shows it.
    body: dict[str, object] = {
        "error": HTTPStatus(status).phrase,
        "message": message,
        "code": status,
    }
    if details is not None:
        body["details"] = details
    return body


class SluiceError(Exception):
    """the request can't be served"""

    status: ClassVar[int] = 500

    def __init__(self, message: str | None = None, *, details: str | None = None) -> None:
        self.message = message or type(self).__doc__ or ""
        self.details = details
        super().__init__(self.message)

    def body(self) -> dict[str, object]:
        return error_body(self.status, self.message, self.details)

    def encoded(self) -> bytes:
        return orjson.dumps(self.body())


class Malformed(SluiceError):
    """the request can't be read"""

    status = 400


class Unauthorized(SluiceError):
    """the API key is missing: send `X-API-Key`, or `Authorization: Bearer`"""

    status = 401


class Forbidden(SluiceError):
    """the API key is not valid for this"""

    status = 403


class NotFound(SluiceError):
    """no such resource"""

    status = 404


class MethodNotAllowed(SluiceError):
    """the path does not support this method"""

    status = 405


class Conflict(SluiceError):
    """the request conflicts with the current state"""

    status = 409


class PreconditionFailed(SluiceError):
    """the version in `If-Match` is not the current one"""

    status = 412


class TooLarge(SluiceError):
    """the body is larger than the limit"""

    status = 413


class Invalid(SluiceError):
    """the request is well-formed but breaks the schema; `details` has a line for each field"""

    status = 422


class TooMany(SluiceError):
    """over the rate limit"""

    status = 429


class UpstreamFailed(SluiceError):
    """the data source can't be reached or does not speak HTTP"""

    status = 502
    incomplete = False
    """True if the data source gave no whole response. Otherwise its response can't be judged."""


class Unavailable(SluiceError):
    """the service is temporarily unavailable; nothing was decided"""

    status = 503


def invalid(complaints: list[str], what: str = "body") -> Invalid:
    """Return an `Invalid` error with all complaints at once, one per line of `details`. `what`
    names the part of the request, such as `body`."""
    count = len(complaints)
    fault = "field is" if count == 1 else "fields are"
    return Invalid(f"{count} {fault} not valid in the {what}", details="\n".join(complaints))


def worded(error: OSError, path: Path | None = None) -> str:
    """Describe an `OSError` of a file as a text such as ``ENOSPC (no space left on device) at
    `/var/lib/sluice/spool` ``. The path is named only if it is given. Not for errors of TLS and of
    name resolution, which have other numbers."""
    where = "" if path is None else f" at `{path}`"
    if error.errno is None:
        return (str(error) or type(error).__name__) + where
    return numbered(error.errno, error.strerror) + where


def numbered(number: int, text: str | None = None) -> str:
    """Describe an `errno` by its name and meaning, such as `ENOSPC (no space left on device)`.
    `text` replaces the meaning."""
    text = text or os.strerror(number)
    text = text[:1].lower() + text[1:]
    name = errno.errorcode.get(number)
    return text if name is None else f"{name} ({text})"
