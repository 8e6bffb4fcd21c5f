"""What `sluice policy test` needs beside the pure runner (`policies.testing`).

tenants.py    the policies and tests that a path holds
outcome.py    one run over all of them
output.py     failures and coverage, as lines and as JSON
junit.py      the same as a report for CI systems
changes.py    waits for the next save
"""
