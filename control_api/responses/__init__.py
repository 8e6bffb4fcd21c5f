"""Response types, as the API describes them. Field names are the API."""
