"""How the page of the description looks, on screens bright and dark. Knows nothing of content."""

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1b1f24;background:#fff}"
    "code,pre{font:14px/1.4 ui-monospace,monospace}"
    "pre{background:#f3f4f6;padding:.75rem;overflow-x:auto;border-radius:4px}"
    "section{border-top:1px solid #d0d7de;padding:.5rem 0}"
    "h2,h3{font-size:1rem;margin:.5rem 0}h3 code{font-size:1rem}"
    "nav ul{list-style:none;padding-left:1rem}"
    ".method{display:inline-block;min-width:4rem;font-weight:700}"
    "table{border-collapse:collapse;width:100%;margin:.5rem 0}"
    "td,th{text-align:left;padding:.2rem .6rem .2rem 0;vertical-align:top}"
    "@media(prefers-color-scheme:dark){body{background:#14171a;color:#e6e8ea}"
    "pre{background:#1f2428}section{border-color:#333a41}a{color:#7ab7ff}}"
)
