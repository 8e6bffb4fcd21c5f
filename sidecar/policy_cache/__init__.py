"""The sidecar's copy of its tenant's policy set: fetched, checked, kept on disk, and its age known.

`copy` is what either kind is to the rest of the sidecar. The whole of it, by HTTP: `feed` is the
port through which changes come, page by page; `long_poll` is that port; `documents` is what is in
force and what is still arriving; `follow` is the loop: ask the feed, judge the answer, put it in
force. Or a working set, by way of Redis (`working_copy`): `redis_set` reads what is signed there,
`working_set` holds what was looked at, `redis_follow` is the loop, `catch_up` what it does with a
change, `challenges` how it knows that there is none, and `supply` the port by which a decision asks
for what is not here yet, which `together` makes one question of many. While Redis is away,
`control_follow` keeps the working set current by the control API's long poll; `failover` says when.
`pin` says by which key either is believed.

`cache_file` is one SQLite file that may be thrown away at any time. `freshness` says how old the
set is, by a clock that can't be set back.
"""
