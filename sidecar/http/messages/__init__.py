"""Parses HTTP/1 messages as they arrive: heads with a strict parser, bodies as streams. Knows no
connection and nothing of what a message means."""
