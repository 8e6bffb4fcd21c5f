"""Request models: one flat model per operation, with the types of its fields. Field names are the
API."""
