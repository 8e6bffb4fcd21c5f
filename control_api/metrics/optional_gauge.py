"""A gauge that may have no value."""

import math
from collections.abc import Iterable

from prometheus_client import Gauge
from prometheus_client.metrics_core import Metric


class OptionalGauge(Gauge):
    """Exposes no sample while its value is NaN: a made-up number would set off alerts, and NaN
    breaks `min` over replicas."""

    def collect(self) -> Iterable[Metric]:
        for family in super().collect():
            family.samples = [each for each in family.samples if not math.isnan(each.value)]
            yield family
