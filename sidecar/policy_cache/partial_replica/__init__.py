"""A partial replica: only the documents that decisions of this sidecar have used, read from Redis,
or from the control API while Redis is away. A document that it lacks may still exist, and has to be
looked up."""
