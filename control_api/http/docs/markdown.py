"""Converts Markdown to HTML (CommonMark, by markdown-it-py). Knows nothing of what is described.

HTML inside the Markdown is escaped, never passed through. Links lead only to http(s) URLs and to
places on the page.
"""

from markdown_it import MarkdownIt

_RENDERER = MarkdownIt("commonmark", {"html": False})


def markdown(text: str) -> str:
    """`text` as HTML blocks: paragraphs, lists, code."""
    html: str = _RENDERER.render(text)
    return html


def inline(text: str) -> str:
    """`text` as inline HTML, for a table cell."""
    html: str = _RENDERER.renderInline(text)
    return html
