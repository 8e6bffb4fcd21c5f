"""The console: pages for people, over the same operations as the API.

    pages        the table of all pages
    pipeline     every request below `/console`: session > page > scope > form > view > response
    page         the request as a view sees it, with the access to operations, and a view's answers
    views/       one module per area: what a page shows and does
    templates/   the pages' HTML; autoescaped
    static/      the style sheet, and ES modules for pages with scripts

Reaches the store and the log through operations alone, so a person sees and does by the console
what the same scope may by the API.
"""
