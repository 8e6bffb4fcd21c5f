"""Reads SQL for sources of kind `postgres`: what a statement does, and what it names."""
