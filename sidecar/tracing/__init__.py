"""OpenTelemetry traces: the context that arrives with a request, its spans, and their export.

Off unless `traces` is set. Written by hand instead of by the SDK, which would take 10 MiB of memory
and a thread in every sidecar for the little that is needed here.
"""
