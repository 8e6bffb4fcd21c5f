"""Finds the indices that a query in SQL, PPL or ES|QL names."""
