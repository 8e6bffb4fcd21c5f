"""The sidecar's copy of its tenant's policy set: fetched, checked, kept on disk, and its age known.

`feed` is the port through which changes come, page by page; `long_poll` is that port over HTTP.
`cache_file` is one SQLite file that may be thrown away at any time, and `documents` the policy set
in it: what is in force, and what is still arriving. `freshness` says how old it is, by a clock that
can't be set back. `follow` is the loop: ask the feed, judge the answer, put it in force.
"""
