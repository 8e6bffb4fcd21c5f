"""HTTP at the control API's edge: one table of routes, one door that every request passes.

`routes` is the table; `door` authenticates, judges scope, reads, calls one use case and renders, by
that table alone; `openapi` and `docs` describe it. Knows nothing of what a use case does.
"""
