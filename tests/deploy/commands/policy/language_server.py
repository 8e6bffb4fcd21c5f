"""A client of a language server, over its standard input and output (LSP 3.17)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import servers

SECONDS = 60.0


class LanguageServer:
    """An open server. Sends one message at a time and reads until what it waits for arrives."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        self._number = 0
        self._opened = 0

    def request(self, method: str, **params: Any) -> Any:
        """The result of a request."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        return next(
            message["result"]
            for message in self._messages()
            if message.get("id") == self._number and "method" not in message
        )

    def notify(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def open(self, folder: Path, text: str) -> tuple[str, list[dict[str, Any]]]:
        """Open `text` as a new file in `folder`. Returns its address, and what is wrong with it."""
        # A new name each time: a late message about an earlier text is not about this one.
        self._opened += 1
        uri = (folder / f"opened-{self._opened}.yaml").as_uri()
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self.notify("textDocument/didOpen", textDocument=document)
        found: list[dict[str, Any]] = next(
            message["params"]["diagnostics"]
            for message in self._messages()
            if message.get("method") == "textDocument/publishDiagnostics"
            and message["params"]["uri"] == uri
        )
        return uri, found

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            size = 0
            while line := self._output.readline().strip():
                name, _, value = line.partition(b":")
                size = int(value) if name.lower() == b"content-length" else size
            assert size, "the language server has gone"
            message: dict[str, Any] = json.loads(self._output.read(size))
            if "method" in message and "id" in message:
                # It asks for its settings, and to register capabilities: there is nothing to say.
                items = (message.get("params") or {}).get("items")
                result: Any = [{} for _ in items] if items else None
                self._send({"id": message["id"], "result": result})
            yield message

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._input.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._input.flush()


@contextmanager
def language_server(root: Path) -> Iterator[LanguageServer]:
    """`yaml-language-server` for the files below `root`. Skips the test if npm can't fetch it."""
    script, node = servers.need("yaml-language-server"), servers.need("node")
    process = subprocess.Popen(
        [str(node), str(script), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root
    )
    try:
        server = LanguageServer(process)
        server.request(
            "initialize",
            processId=None,
            rootUri=root.as_uri(),
            capabilities={},
            workspaceFolders=None,
        )
        server.notify("initialized")
        yield server
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)
