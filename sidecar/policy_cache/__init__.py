"""The sidecar's copy of its tenant's policy set: fetched, verified, kept on disk, with its age.

A full replica holds every document. A partial replica, for a sidecar with `redis`, holds only those
that decisions have used, and fetches others when a decision needs one. `policy_view` is the set as
decisions see it, `replica` as the rest of the sidecar does, whichever kind it is.
"""
