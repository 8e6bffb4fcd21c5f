"""HTTP/1 connections to other servers: dialled past a guard, pooled, and read strictly. Knows
neither policies nor which requests may be repeated."""
