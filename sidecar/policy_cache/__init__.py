"""The sidecar's replica of its tenant's policy set: fetched, verified, kept on disk, with its age.

replica            what the rest of the sidecar sees, whichever kind of replica it is
full/              every document, by long poll from the control API
partial/           only the documents in use, from Redis or from the control API

feed               pages of changed documents, and their errors; `long_poll` reads them by HTTP
feed_loop          what the loops that keep a replica current have in common
document_fetcher   how a decision asks for a document that is not here yet
key_pin            which key may sign the policy set
freshness          how old the set is, by a clock that can't be set back
cache_file         the SQLite file behind both replicas; it may be deleted at any time
"""
