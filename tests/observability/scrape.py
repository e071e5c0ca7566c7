"""Reading ``GET /metrics``."""

from __future__ import annotations

from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from paraserve.api.app import Application


@dataclass
class Scrape:
    samples: list[tuple[str, dict[str, str], float]]

    def value(self, name: str, **labels: str) -> float:
        """The sum over every series with these labels; ``name`` without the common prefix."""
        wanted = labels.items()
        return sum(
            value for found, have, value in self.samples if found == f"paraserve_{name}" and wanted <= have.items()
        )

    def labels(self, name: str, label: str) -> set[str]:
        """Values of a label, of series that are not zero."""
        return {have[label] for found, have, value in self.samples if found == f"paraserve_{name}" and value}


async def scrape(http: httpx.AsyncClient) -> Scrape:
    response = await http.get("/metrics")
    assert response.status_code == 200
    return read(response.text)


def scrape_app(app: Application) -> Scrape:
    """What ``/metrics`` would say, without a request of its own."""
    encode, _ = app.state.metrics.exposition("")
    return read(encode().decode())


def read(text: str) -> Scrape:
    families = text_string_to_metric_families(text)
    return Scrape([(s.name, s.labels, s.value) for family in families for s in family.samples])
