"""The sidecar's own counters and histograms render what the library's would."""

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from policies.checks.order import NAMES
from policies.evaluate import Decision, refuse
from sidecar.metrics.metrics import REFUSALS, Counter, Durations, Metrics, Observations


def samples(registry: CollectorRegistry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of the text that a scraper reads."""
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_count_is_kept_for_each_set_of_labels() -> None:
    registry = CollectorRegistry()
    count = Counter("things_total", "Things", ("kind",), registry=registry)
    assert samples(registry) == {}
    count.start("a")
    assert samples(registry) == {("things_total", (("kind", "a"),)): 0}
    for kind in "aab":
        count.add(kind)
    assert samples(registry) == {
        ("things_total", (("kind", "a"),)): 2,
        ("things_total", (("kind", "b"),)): 1,
    }
    count.start("b")
    assert samples(registry)["things_total", (("kind", "b"),)] == 1


def test_a_counter_without_labels_starts_at_zero() -> None:
    registry = CollectorRegistry()
    count = Counter("things_total", "Things", registry=registry)
    assert samples(registry) == {("things_total", ()): 0}
    count.add()
    assert samples(registry) == {("things_total", ()): 1}


def test_durations_are_a_histogram() -> None:
    registry = CollectorRegistry()
    durations = Durations("work_seconds", "Work", (0.001, 0.01), registry=registry)
    for seconds in (0.0005, 0.001, 0.002, 5.0):
        durations.observe(seconds)
    found = samples(registry)
    assert found["work_seconds_bucket", (("le", "0.001"),)] == 2
    assert found["work_seconds_bucket", (("le", "0.01"),)] == 3
    assert found["work_seconds_bucket", (("le", "+Inf"),)] == 4
    assert found["work_seconds_count", ()] == 4
    assert found["work_seconds_sum", ()] == pytest.approx(5.0035)


def test_observations_are_read_at_each_scrape() -> None:
    registry = CollectorRegistry()
    watches = Observations(registry)
    held = [1.0]
    watches.gauge("level", "Level", lambda: held[0])
    watches.count("events_total", "Events", lambda: held[0] * 10)
    held[0] = 7.0
    assert samples(registry) == {("level", ()): 7, ("events_total", ()): 70}


def test_labels_of_denials_come_from_a_closed_set() -> None:
    metrics = Metrics(CollectorRegistry())
    for name in (*REFUSALS, "somebody's text"):
        metrics.decided(refuse(name, ""))
    for check in NAMES:
        metrics.decided(Decision("DENY", "a policy", "", check, None, None, ()))
    metrics.decided(Decision("ALLOW", "a policy", "", None, None, None, ()))
    found = samples(metrics.registry)
    counted = {dict(labels)["check"] for name, labels in found if name == "sluice_decisions_total"}
    assert counted == {*REFUSALS, *NAMES, "other", "none"}


def test_a_forwarded_denial_is_counted_twice() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.decided(refuse("write_denied", ""), report_only=True)
    metrics.decided(refuse("somebody's text", ""), report_only=True)
    metrics.decided(refuse("write_denied", ""))
    found = samples(metrics.registry)
    assert found["sluice_reported_total", (("check", "write_denied"),)] == 1
    assert found["sluice_reported_total", (("check", "other"),)] == 1
    assert found["sluice_decisions_total", (("check", "write_denied"), ("decision", "DENY"))] == 2
