"""The style sheet and the ES modules, at addresses that change with their contents.

A browser therefore keeps them for good, and never mixes those of two versions: modules import one
another by relative addresses, so all of a page's are of one version.
"""

from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from control_api.console.routes import ROOT
from policies.ground.errors import NotFound

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class StaticFile(NamedTuple):
    """A file as it is served."""

    content_type: str
    body: bytes


class StaticFiles:
    """The files of `static/`, read once."""

    def __init__(self) -> None:
        found = sorted(files("control_api.console").joinpath("static").iterdir(), key=str)
        self._files = {
            each.name: StaticFile(_TYPES[kind], each.read_bytes())
            for each in found
            if (kind := each.name.rpartition(".")[2]) in _TYPES
        }
        digest = sha256(b"".join(each.body for each in self._files.values())).hexdigest()
        self.prefix = f"{ROOT}/static/{digest[:16]}/"

    def address(self, name: str) -> str:
        """Where a page finds the file. Raises `KeyError` if there is no such file."""
        if name not in self._files:
            raise KeyError(name)
        return self.prefix + name

    def find(self, path: str) -> StaticFile:
        """Raises `NotFound` if nothing is served at `path`."""
        found = self._files.get(path.removeprefix(self.prefix))
        if not path.startswith(self.prefix) or found is None:
            raise NotFound("no such file")
        return found
