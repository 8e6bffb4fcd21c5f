"""gRPC's messages: their framing, their fields, and the status that ends a call. Knows no
connection and no data source."""
