"""The sidecar's copy of its tenant's policy set: fetched, verified, kept on disk, with its age.

There are two kinds. A full replica holds every document of the set. A partial replica holds only
the documents that decisions of this sidecar have used, and fetches others when a decision needs
one; a sidecar uses it if `redis` is set.

policy_view        the policy set as decisions use it, and how they ask for what is not here yet
replica            what the rest of the sidecar sees, whichever kind it is, and what a loop works on
full_replica       every document, by long poll from the control API; full_store keeps them
partial_replica/   the documents in use, from Redis or from the control API

feed               the interface of a feed, and its errors; `long_poll` implements it over HTTP
feed_loop          what the loops that keep a replica current have in common
key_pin            which key may sign the policy set
freshness          how old the set is, by a clock that can't be set back
policy_store       the part of the cache file that both kinds of replica use in the same way
cache_file         the SQLite file behind both; it may be deleted at any time
"""
