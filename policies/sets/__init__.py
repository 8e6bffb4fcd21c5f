"""A tenant's policy set: documents under a signed Merkle root, compiled on first use."""
