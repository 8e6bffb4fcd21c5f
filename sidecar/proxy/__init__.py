"""The proxy between an agent and its data sources: reads each request once, asks whether it may
happen, and only then forwards it. The README beside this file follows one request through.

Knows HTTP. Knows no data source (`sidecar.protocols` does) and no rule (`policies` does).
"""
