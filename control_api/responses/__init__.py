"""The shapes of responses, as the API describes them. Field names are the API."""
