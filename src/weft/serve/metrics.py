"""Prometheus metrics, in a registry of their own. Names are vLLM's with the prefix weft_, so that dashboards translate.

What changes with every token is counted by the engine and the queues, and read when somebody asks for the metrics.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

if TYPE_CHECKING:  # which imports torch
    from weft.serve.writing import WritingQueue

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class _Writes(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def writing(self) -> "WritingQueue | None": ...


class ServiceMetrics:
    def __init__(self, models: Iterable[_Writes] = ()) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_EngineMetrics(tuple(models)))
        self.http = Counter(
            "weft_http_requests",
            "Requests by route and status; 499: the client left",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.running = Gauge("weft_http_requests_running", "Requests being answered", registry=self.registry)
        self.success = Counter(
            "weft_request_success",
            "Answers by the reason they ended",
            ("model_name", "finished_reason"),
            registry=self.registry,
        )
        self.first_token = self._seconds("weft_time_to_first_token_seconds", "From the request to its first token")
        self.whole = self._seconds("weft_e2e_request_latency_seconds", "From the request to its last token")

    def _seconds(self, name: str, about: str) -> Histogram:
        return Histogram(name, about, ("model_name",), buckets=_SECONDS, registry=self.registry)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _EngineMetrics:
    """Reads the engines' counters at the moment of the request."""

    def __init__(self, models: tuple[_Writes, ...]) -> None:
        self.models = models

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        label = ["model_name"]
        gauges = {
            "running": GaugeMetricFamily("weft_num_requests_running", "Requests being written", labels=label),
            "waiting": GaugeMetricFamily("weft_num_requests_waiting", "Requests that wait", labels=label),
            "cache": GaugeMetricFamily("weft_kv_cache_usage_perc", "Share of the cache in use, 0 to 1", labels=label),
        }
        counters = {
            "prompt": CounterMetricFamily("weft_prompt_tokens", "Tokens of prompts that were read", labels=label),
            "written": CounterMetricFamily("weft_generation_tokens", "Tokens written", labels=label),
            "cached": CounterMetricFamily("weft_prefix_cache_hits", "Prompt tokens found in the cache", labels=label),
        }
        between = HistogramMetricFamily(
            "weft_inter_token_latency_seconds", "Between two tokens of an answer", labels=label
        )
        for one in self.models:
            if one.writing is None:
                continue
            load, name = one.writing.engine.load, [one.name]
            gauges["running"].add_metric(name, load.running)
            gauges["waiting"].add_metric(name, one.writing.waiting)
            gauges["cache"].add_metric(name, load.pages_used / max(load.pages_total, 1))
            counters["prompt"].add_metric(name, load.prompt_tokens)
            counters["written"].add_metric(name, load.generated_tokens)
            counters["cached"].add_metric(name, load.cached_tokens)
            seconds = one.writing.token_seconds
            between.add_metric(name, buckets=seconds.cumulative(), sum_value=seconds.sum)
        yield from (*gauges.values(), *counters.values(), between)
