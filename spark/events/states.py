"""The views that keep a state, whichever they are."""

from __future__ import annotations

from pyspark.sql import SparkSession

from cdc.fold import FoldView
from cdc.stateful import StatefulView
from cdc.timed import MatchView, WindowView
from spark.events.fold import analyse_fold
from spark.events.matches import analyse_matches
from spark.events.windows import analyse_windows
from spark.reading.expressions import Refuse, unplaced


def analyse_stateful(spark: SparkSession, view: StatefulView, refuse: Refuse = unplaced) -> StatefulView:
    """Check a view's expressions, and learn the types of its documents' fields.

    Args:
        spark: any session.
        view: a fold, windows or matches.
        refuse: makes the error for a part of the view.

    Raises:
        ConfigError: they do not parse, or do not fit (terminal).
    """
    if isinstance(view, FoldView):
        return analyse_fold(spark, view, refuse)
    if isinstance(view, WindowView):
        return analyse_windows(spark, view, refuse)
    assert isinstance(view, MatchView)
    return analyse_matches(spark, view, refuse)
