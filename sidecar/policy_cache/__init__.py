"""The sidecar's copy of its tenant's policy set: fetched, verified, kept on disk, and its age
known.

A full replica holds every document. A partial replica, for a sidecar with the setting `redis`,
holds only the documents that decisions have used, and fetches others when a decision needs them.
`policy_view` is the interface for decisions, and `replica` the interface for the rest of the
sidecar; both are the same for the two kinds.
"""
