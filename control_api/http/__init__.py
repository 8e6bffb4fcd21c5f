"""The HTTP layer of the control API: one table of routes, one pipeline that every request passes.

`routes` is the table. `request_pipeline` authenticates, checks the scope, parses, calls one use
case and renders, by that table alone. `openapi` and `docs` describe the API. Knows nothing of
what a use case does.
"""
