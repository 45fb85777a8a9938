"""The metrics that Prometheus reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from secondsight.extras import require

if TYPE_CHECKING:
    from secondsight.serve.decoders import Decoders
    from secondsight.serve.service import Service


class Metrics:
    """Counters of one server; several may live in one process."""

    def __init__(self, services: Sequence[Service], decoders: Decoders):
        self._client: Any = require("prometheus_client", extra="serve", purpose="/metrics")
        self._registry = self._client.CollectorRegistry()
        made = {"registry": self._registry}
        self.requests = self._client.Counter(
            "secondsight_requests_total", "Requests by address and status.", ["address", "status"], **made
        )
        self.seconds = self._client.Histogram(
            "secondsight_request_seconds",
            "Seconds a request.",
            ["address"],
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
            **made,
        )
        self.refused = self._client.Counter(
            "secondsight_refused_total", "Requests that were told to come back later.", **made
        )
        gauges = {
            "decoder_deaths": ("Decoders that died or were ended.", lambda: decoders.deaths),
            "items": ("Items in the collections.", lambda: sum(len(s.index) for s in services)),
            "kept": ("Pictures whose features are kept.", lambda: sum(len(s.shelf) for s in services)),
            "pictures_waiting": ("Pictures being decoded and embedded.", lambda: sum(s.waiting for s in services)),
            "pictures": ("Pictures that were embedded.", lambda: _sum(services, "pictures")),
            "batches": ("Batches that the network computed.", lambda: _sum(services, "batches")),
        }
        for name, (words, value) in gauges.items():
            self._client.Gauge(f"secondsight_{name}", words, **made).set_function(value)

    def text(self) -> bytes:
        return self._client.generate_latest(self._registry)


def _sum(services: Sequence[Service], name: str) -> int:
    return sum(0 if s._network is None else getattr(s._network, name) for s in services)
