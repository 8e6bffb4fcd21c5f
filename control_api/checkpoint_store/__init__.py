"""Stores signed checkpoints of logs (notes) outside the database that holds the logs."""
