"""Between the agent and a data source: reads a request once, asks whether it may happen, and only
then lets it pass; the README beside this file follows one request through.

Knows HTTP. Knows no data source (`sidecar.protocols` does) and no rule (`policies` does).
"""
