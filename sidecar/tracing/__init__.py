"""OpenTelemetry traces, off unless `traces` is set. Written by hand: the SDK would take 10 MiB of
memory and a thread in every sidecar for the little that is needed here."""
