"""XML as S3 writes it, with the places of its elements in the text: no document type, so no
entities but XML's own; UTF-8 and nothing else, whatever the text says of itself. Pure."""

import re
from html import escape
from typing import Any, NamedTuple
from xml.parsers.expat import ExpatError, ParserCreate

_TAG = re.compile(rb"""<[^"'>]*(?:"[^"]*"[^"'>]*|'[^']*'[^"'>]*)*>""").match
_DEEPEST = 8
_BOM = b"\xef\xbb\xbf"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Element(NamedTuple):
    """An element, its place in the body, its own text, and what is in it."""

    name: str
    start: int
    """Where its start tag begins."""
    close: int
    """Where its end tag begins, if it has one."""
    text: str
    children: list["Element"]

    def one(self, name: str) -> "Element | None":
        """The child of this name, if there is exactly one."""
        found = [child for child in self.children if child.name == name]
        return found[0] if len(found) == 1 else None


class UnreadableXml(Exception):
    """what can't be read as the XML that S3 writes"""


def read(body: bytes) -> Element:
    """The root element. Raises `UnreadableXml`."""
    return _ElementBuilder(body).root()


def span(body: bytes, element: Element) -> tuple[int, int]:
    """Where the element begins and ends in `body`, which it was read from."""
    _, close = inside(body, element)
    return element.start, close if _is_empty(body, element) else _tag_end(body, close)


def inside(body: bytes, element: Element) -> tuple[int, int]:
    """Where what is in the element begins and ends."""
    start = _tag_end(body, element.start)
    return start, start if _is_empty(body, element) else element.close


def _is_empty(body: bytes, element: Element) -> bool:
    # Of `<a/>` there is no end tag, and the place told of one is behind it.
    return body.startswith(b"/>", _tag_end(body, element.start) - 2)


def _tag_end(body: bytes, at: int) -> int:
    found = _TAG(body, at)
    assert found is not None
    return found.end()


def error(code: str, message: str, decision: dict[str, str]) -> bytes:
    """An error as S3 tells of one: its clients show code and message, and read no other form."""

    def element(name: str, text: str) -> str:
        return f"<{name}>{escape(_NOT_XML.sub('?', text), quote=False)}</{name}>"

    told = "".join(element(name, text) for name, text in decision.items())
    whole = (
        element("Code", code)
        + element("Message", message)
        + element("RequestId", decision["event_id"])
        + f"<Decision>{told}</Decision>"
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{whole}</Error>'.encode()


class _ElementBuilder:
    """Builds elements out of expat's events. Offsets count bytes: the text is UTF-8."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._open: list[tuple[str, int, list[str], list[Element]]] = []
        self._root: Element | None = None
        parser = self._parser = ParserCreate("UTF-8")
        parser.buffer_text = True
        parser.XmlDeclHandler = self._declared
        parser.StartDoctypeDeclHandler = self._refused
        parser.StartElementHandler = self._started
        parser.EndElementHandler = self._ended
        parser.CharacterDataHandler = self._said

    def root(self) -> Element:
        try:
            # expat knows UTF-16 by its first bytes, whatever it is told.
            if "\0" in self._body.decode("utf-8") or self._body.startswith(_BOM):
                raise UnreadableXml("it is not plain UTF-8")
            self._parser.Parse(self._body, True)
        except (ExpatError, UnicodeDecodeError) as error:
            raise UnreadableXml(str(error)) from None
        assert self._root is not None
        return self._root

    def _declared(self, _version: str, encoding: str | None, _standalone: int) -> None:
        if encoding is not None and encoding.lower() != "utf-8":
            raise UnreadableXml("it is not UTF-8")

    def _refused(self, *_of: Any) -> None:
        raise UnreadableXml("it declares a document type")

    def _started(self, name: str, _attributes: dict[str, str]) -> None:
        if len(self._open) >= _DEEPEST:
            raise UnreadableXml("it is nested too deeply")
        self._open.append((name, self._parser.CurrentByteIndex, [], []))

    def _ended(self, name: str) -> None:
        _, start, text, children = self._open.pop()
        close = self._parser.CurrentByteIndex
        element = Element(name, start, close, "".join(text), children)
        if self._open:
            self._open[-1][3].append(element)
        else:
            self._root = element

    def _said(self, text: str) -> None:
        if self._open:
            self._open[-1][2].append(text)
