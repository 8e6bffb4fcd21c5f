"""A partial replica: only the documents that this sidecar's decisions have used, read from Redis,
or from the control API while Redis is away. A document that the replica lacks may still exist, and
has to be looked up."""
