"""Parses XML as S3 writes it, and keeps each element's position in the text. Pure."""

import re
from html import escape
from typing import Any, NamedTuple
from xml.parsers.expat import ExpatError, ParserCreate

# Attributes' values may hold a `>`.
_TAG = re.compile(rb"""<[^"'>]*(?:"[^"]*"[^"'>]*|'[^']*'[^"'>]*)*>""").match
# S3's lists have four levels.
_MAX_DEPTH = 8
_BOM = b"\xef\xbb\xbf"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Element(NamedTuple):
    """An element: its position in the body, its own text, and its children."""

    name: str
    start: int
    """The offset at which the start tag begins."""
    close: int
    """The offset at which the end tag begins, if there is one."""
    text: str
    children: list["Element"]
    attributes: tuple[str, ...] = ()
    """The names of its attributes, without those that declare a namespace."""

    def one(self, name: str) -> "Element | None":
        """Return the child of this name, if there is exactly one."""
        # Readers differ on which of two counts.
        found = [child for child in self.children if child.name == name]
        return found[0] if len(found) == 1 else None


class UnreadableXml(Exception):
    """the text is not XML as S3 writes it"""


def read(body: bytes) -> Element:
    """Return the root element. Raises `UnreadableXml`."""
    return _ElementBuilder(body).root()


def span(body: bytes, element: Element) -> tuple[int, int]:
    """Return the offsets in `body`, the text it was parsed from, at which the element begins and
    ends."""
    _, close = content_span(body, element)
    return element.start, close if _is_empty(body, element) else _tag_end(body, close)


def content_span(body: bytes, element: Element) -> tuple[int, int]:
    """Return the offsets at which the element's content begins and ends."""
    start = _tag_end(body, element.start)
    return start, start if _is_empty(body, element) else element.close


def _is_empty(body: bytes, element: Element) -> bool:
    # `<a/>` has no end tag: expat reports its end at the position after it.
    return body.startswith(b"/>", _tag_end(body, element.start) - 2)


def _tag_end(body: bytes, at: int) -> int:
    # expat has accepted this tag, so the expression matches it.
    found = _TAG(body, at)
    assert found is not None
    return found.end()


def error_response(code: str, message: str, decision: dict[str, str]) -> bytes:
    """Return an error in S3's form, the only one its clients read: they show the code and the
    message. `decision` may be empty."""

    def element(name: str, text: str) -> str:
        # XML 1.0 can't hold these characters, not even escaped.
        return f"<{name}>{escape(_NOT_XML.sub('?', text), quote=False)}</{name}>"

    whole = element("Code", code) + element("Message", message)
    if decision:
        decision_xml = "".join(element(name, text) for name, text in decision.items())
        whole += element("RequestId", decision["event_id"]) + f"<Decision>{decision_xml}</Decision>"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{whole}</Error>'.encode()


class _ElementBuilder:
    """Builds elements from expat's events. Offsets are in bytes of the UTF-8 text."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._open: list[tuple[str, int, list[str], list[Element], tuple[str, ...]]] = []
        self._root: Element | None = None
        parser = self._parser = ParserCreate("UTF-8")
        parser.buffer_text = True
        parser.XmlDeclHandler = self._on_declaration
        parser.StartDoctypeDeclHandler = self._on_doctype
        parser.StartElementHandler = self._on_start
        parser.EndElementHandler = self._on_end
        parser.CharacterDataHandler = self._on_text

    def root(self) -> Element:
        try:
            # expat detects UTF-16 by its first bytes, even when told that the text is UTF-8.
            if "\0" in self._body.decode("utf-8") or self._body.startswith(_BOM):
                raise UnreadableXml("it is not UTF-8 without a byte order mark")
            self._parser.Parse(self._body, True)
        except (ExpatError, UnicodeDecodeError) as error:
            raise UnreadableXml(str(error)) from None
        assert self._root is not None
        return self._root

    def _on_declaration(self, version: str, encoding: str | None, _standalone: int) -> None:
        # XML 1.1 has more line ends, so its readers would find other texts.
        if version != "1.0":
            raise UnreadableXml(f"it declares XML {version[:64]}, not 1.0")
        # expat reads UTF-8 whatever is declared, but the agent's parser may go by the declaration.
        if encoding is not None and encoding.lower() != "utf-8":
            raise UnreadableXml(f"it declares the encoding `{encoding[:64]}`, not UTF-8")

    def _on_doctype(self, *_of: Any) -> None:
        # Without a document type there are only XML's own entities, so nothing expands ("billion
        # laughs") and nothing is fetched.
        raise UnreadableXml("it declares a document type")

    def _on_start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) >= _MAX_DEPTH:
            raise UnreadableXml(f"it is nested more than {_MAX_DEPTH} levels deep")
        others = tuple(each for each in attributes if each.partition(":")[0] != "xmlns")
        self._open.append((name, self._parser.CurrentByteIndex, [], [], others))

    def _on_end(self, name: str) -> None:
        _, start, text, children, attributes = self._open.pop()
        close = self._parser.CurrentByteIndex
        element = Element(name, start, close, "".join(text), children, attributes)
        if self._open:
            self._open[-1][3].append(element)
        else:
            self._root = element

    def _on_text(self, text: str) -> None:
        if self._open:
            self._open[-1][2].append(text)
