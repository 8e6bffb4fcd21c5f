"""The proxy's side towards the data source: sends requests, and receives responses."""
