"""A tenant's policy set: documents under a signed Merkle root, each compiled when it is first
used."""
