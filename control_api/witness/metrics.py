"""The witness's metrics; README.md lists them, and a test compares both. Labels come from closed
sets, never from a log."""

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from policies import __version__


class Answer(StrEnum):
    """What became of a submitted checkpoint."""

    cosigned = "cosigned"
    malformed = "malformed"
    """400 or 413: not the protocol."""
    unsigned = "unsigned"
    """403: not signed by the log's key."""
    unknown = "unknown"
    """404: no log of the configuration."""
    conflict = "conflict"
    """409: the log did not know what was cosigned last. Normal after a restart."""
    inconsistent = "inconsistent"
    """422: the log's key signed what does not continue the log. Examine it."""
    failed = "failed"
    """5xx: the state can't be written, or the disk is slow."""


BY_STATUS = {
    403: Answer.unsigned,
    404: Answer.unknown,
    409: Answer.conflict,
    422: Answer.inconsistent,
}


class WitnessMetrics:
    """All metrics of the process, created on `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        build = Gauge("sluice_build_info", "Always 1.", ["version"], registry=registry)
        build.labels(__version__).set(1)
        self.answers = Counter(
            "sluice_witness_answers_total",
            "Submitted checkpoints, by what became of them.",
            ("answer",),
            registry=registry,
        )
        for each in Answer:
            self.answers.labels(each)
        self.connections = Gauge(
            "sluice_witness_connections", "Open connections.", registry=registry
        )
