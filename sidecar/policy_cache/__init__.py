"""The sidecar's copy of its tenant's policy set: fetched, verified, kept on disk, with its age.

There are two kinds. A full replica holds every document of the set. A partial replica holds only
the documents that decisions of this sidecar have used, and fetches others when a decision needs
one; a sidecar uses it if `redis` is set.

policy_view        the policy set as decisions use it
replica            what the rest of the sidecar sees, whichever kind it is
full_replica/      every document, by long poll from the control API
partial_replica/   the documents in use, from Redis or from the control API

feed               the interface of a feed, and its errors; `long_poll` implements it over HTTP
feed_loop          what the loops that keep a replica current have in common
document_fetcher   how a decision asks for a document that is not here yet
agent_documents    how a search reads all agents
candidate_roles    the documents of candidates, which no decision waits for
key_pin            which key may sign the policy set
freshness          how old the set is, by a clock that can't be set back
replica_state      what a loop works on, and whom it tells of a change
policy_store       the part of the cache file that both kinds of replica use in the same way
cache_file         the SQLite file behind both; it may be deleted at any time
"""
