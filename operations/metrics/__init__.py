"""What Prometheus is told: of pipelines, their webhooks and matchers, and of an audit."""
