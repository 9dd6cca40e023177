"""``GET /metrics``: for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from operations.metrics.pipelines import metrics

router = APIRouter()


@router.get("/metrics", response_class=PlainTextResponse)
def scrape(request: Request) -> PlainTextResponse:
    """All pipelines, in Prometheus' text format; asks no server (docs/metrics.md)."""
    pipelines = request.app.state.pipelines
    text = metrics(one.pipeline for one in pipelines)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")
