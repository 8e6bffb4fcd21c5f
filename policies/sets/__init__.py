"""A tenant's policy set: documents under a signed Merkle root, compiled when first needed."""
