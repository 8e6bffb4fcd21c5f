"""Converts Markdown to HTML (CommonMark, by markdown-it-py). Knows nothing of the API.

Links lead only to http(s) URLs and to places on the page.
"""

from markdown_it import MarkdownIt

# `html: False`: a docstring with `<b>` shows it, and nothing from a description can become markup.
_RENDERER = MarkdownIt("commonmark", {"html": False})


def markdown(text: str) -> str:
    """`text` as HTML blocks: paragraphs, lists, code."""
    return str(_RENDERER.render(text))


def inline(text: str) -> str:
    """`text` as inline HTML, for a table cell."""
    return str(_RENDERER.renderInline(text))
