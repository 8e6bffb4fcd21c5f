"""Proofs for people who hold a checkpoint: made from what is stored, checked against what was
signed."""
