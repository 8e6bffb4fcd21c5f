"""The console: pages for people, over the same operations as the API.

    pages        the table of all pages
    pipeline     every request below `/console`: session > page > scope > form > view > response
    page         who asks, what for, the way to the operations, and what a view may answer
    views/       one module per area: what a page shows and does
    templates/   what it looks like; autoescaped
    static/      the style sheet, and ES modules where a page is alive

Reaches the store and the log through operations alone, so a person sees and does by the console
what the same scope may by the API.
"""
