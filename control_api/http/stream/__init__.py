"""Responses that are sent while they are made: `sending` writes them, `content_coding` compresses
them. Knows no route."""
