"""The registry: bulk observations, several processes, and what the operating page and the dashboard say of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from paraserve.generation.timings import GAP_BOUNDS, Timings
from paraserve.observability.metrics import Metrics
from paraserve.observability.tallies import HistogramTally, Tally
from tests.observability.scrape import read

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operating.md").read_text()
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "paraserve.json").read_text())
SUFFIXES = ("_bucket", "_sum", "_count")


def declared() -> dict[str, tuple[str, set[str]]]:
    """Every metric of ours: name to kind and label names, as a scraper sees them."""
    metrics = Metrics(["toy"], policies=["p"], build={"version": "1", "engine": "e", "engine_version": "2"})
    found = {}
    for collected in metrics.registry.collect():
        name = collected.name + ("_total" if collected.type == "counter" else "")
        if name.startswith("paraserve_"):
            found[name] = (collected.type, set(vars(metrics.registry._names_to_collectors[name])["_labelnames"]))
    return found


def documented() -> dict[str, tuple[str, set[str]]]:
    """The rows of the page's table of metrics: name, kind, labels, meaning."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if line.startswith("| `paraserve_")
    ]
    return {row[0].strip("`"): (row[1], set(re.findall(r"`(\w+)`", row[2]))) for row in rows}


def test_every_metric_is_documented_with_its_kind_and_labels_and_nothing_else_is() -> None:
    assert documented() == declared()


def test_the_bounds_of_every_histogram_are_documented() -> None:
    registry = Metrics(["toy"], policies=["p"], build={"version": "1", "engine": "e", "engine_version": "2"}).registry
    bounds = {
        name.removeprefix("paraserve_"): list(registry._names_to_collectors[name]._upper_bounds)[:-1]  # type: ignore[attr-defined]
        for name, (kind, _) in declared().items()
        if kind == "histogram"
    }
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([\d., ]+) \|$", PAGE, re.MULTILINE)
    shown = {
        name: [float(bound) for bound in row[1].split(", ")] for row in rows for name in re.findall(r"\w+", row[0])
    }
    assert shown == bounds


def expressions(panel: Any) -> list[str]:
    """Every query below a part of the dashboard."""
    if isinstance(panel, dict):
        here = [panel["expr"]] if "expr" in panel else []
        return here + [found for value in panel.values() for found in expressions(value)]
    return [found for value in panel for found in expressions(value)] if isinstance(panel, list) else []


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are() -> None:
    queries = expressions(DASHBOARD)
    assert len(queries) > 15
    for query in queries:
        names = re.findall(r"\b(paraserve_\w+)", query)
        assert names, query
        for name in names:
            base = next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)
            kind, labels = declared()[name if name in declared() else base]
            assert (kind == "histogram") == (base != name), query
            used = {label for part in re.findall(name + r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)=", part)}
            used |= {label for part in re.findall(r"by \(([^)]*)\)", query) for label in re.split(r",\s*", part)}
            assert used - {"le", "instance", "job"} <= labels, query


def test_every_metric_of_requests_is_on_the_dashboard() -> None:
    text = json.dumps(DASHBOARD)
    assert [name for name in declared() if name not in text] == []


@given(st.lists(st.floats(0, 10), max_size=40))
def test_observations_by_the_thousand_are_what_single_ones_would_have_been(values: list[float]) -> None:
    single, bulk = CollectorRegistry(), CollectorRegistry()
    one = Histogram("h", "text", ["model"], buckets=GAP_BOUNDS, registry=single).labels("toy")
    many = HistogramTally(Histogram("h", "text", ["model"], buckets=GAP_BOUNDS, registry=bulk))
    counts = [0] * (len(GAP_BOUNDS) + 1)
    for value in values:
        one.observe(value)
        counts[next((i for i, bound in enumerate(GAP_BOUNDS) if value <= bound), len(GAP_BOUNDS))] += 1
    many.add(("toy",), counts, sum(values))
    many.hand_over()
    assert _numbers(bulk) == pytest.approx(_numbers(single))


@given(st.lists(st.floats(0, 10) | st.sampled_from(GAP_BOUNDS), max_size=40))
def test_each_observation_falls_into_the_bucket_of_the_library(values: list[float]) -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    library = Histogram("h", "text", ["model"], buckets=GAP_BOUNDS, registry=theirs)
    tally = HistogramTally(Histogram("h", "text", ["model"], buckets=GAP_BOUNDS, registry=ours))
    library.labels("toy")
    for value in values:
        library.labels("toy").observe(value)
        tally.observe(("toy",), value)
        if value > 5:
            tally.hand_over()
    tally.observe(("toy",), None)
    tally["toy",]
    tally.hand_over()
    assert _numbers(ours) == pytest.approx(_numbers(theirs))


def test_what_is_counted_is_handed_over_once_and_a_count_never_falls() -> None:
    registry = CollectorRegistry()
    tally = Tally(Counter("c", "text", ["model"], registry=registry))
    tally.add(("toy",))
    tally.add(("toy",), 2)
    with pytest.raises(ValueError, match="falls"):
        tally.add(("toy",), -1)
    for _ in range(2):
        tally.hand_over()
        assert registry.get_sample_value("c_total", {"model": "toy"}) == 3


def _numbers(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(generate_latest(registry).decode())
    samples = [sample for family in families for sample in family.samples]
    return {(s.name, s.labels.get("le", "")): s.value for s in samples if not s.name.endswith("_created")}


def test_tokens_of_one_chunk_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 1.036, 1.045])
    monkeypatch.setattr("paraserve.generation.timings.perf_counter", lambda: next(clock))
    timings = Timings()
    timings.ask()
    timings.take(3)
    timings.take(0)
    timings.take(4)
    timings.take(1)
    counts, total = timings.take_gaps()
    assert timings.first == 1.0
    assert total == pytest.approx(0.045)
    assert sum(counts) == 5
    assert counts[GAP_BOUNDS.index(0.01)] == 5
    assert timings.take_gaps() == ([0] * len(counts), 0.0)


def test_what_a_course_holds_does_not_grow_with_the_reply() -> None:
    timings = Timings()
    timings.ask()
    for _ in range(100):
        timings.take(1)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(5000):
            timings.take(1)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2000
    assert sum(timings.gaps) == 5099


WORKER = """
from prometheus_client.multiprocess import MultiProcessCollector
from paraserve.observability.metrics import Metrics
from paraserve.observability.record import RequestRecord
metrics = Metrics(["toy"], build={"version": "1", "engine": "e", "engine_version": "2"})
record = RequestRecord("id", "POST", "/v1/chat/completions", status=200, model="toy")
metrics.begin(record)
metrics.end(record)
encode, _ = metrics.exposition("")
print(encode().decode())
"""


def test_several_processes_answer_with_the_sum(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    outputs = [
        subprocess.run([sys.executable, "-c", WORKER], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    seen = read(outputs[-1].stdout)
    assert seen.value("requests_total", status="200", stream="false") == 2
    assert seen.value("build_info") == 1
