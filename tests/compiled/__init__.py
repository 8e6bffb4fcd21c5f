"""The core compiled and as Python: both give the same bytes for the same input, errors included.

python -m tests.compiled [COUNT]        COUNT random decisions and records, 1,000,000 by default
"""
