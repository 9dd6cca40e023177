"""Views that are made of events and keep a state: folds, windows, matches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cdc.errors import ConfigError
from cdc.view import View


@dataclass(frozen=True)
class StatefulView(View):
    """A view whose documents are made of many events, which Spark's own state remembers.

    Attributes:
        state: field of a document -> Spark SQL type, in order; known once Spark has seen the expressions.
    """

    state: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    # What it is, for people.
    made = "made of events"
    # Where the file says how.
    said = ""

    @property
    def shown(self) -> Collection[str] | None:
        """The fields of a document beside the columns; None while nobody knows them, for Spark has not seen the
        expressions."""
        return self.state.keys() if self.state else None

    @property
    def needs_spark(self) -> bool:
        """Always: what it shows is computed."""
        return True

    @property
    def outlives_rows(self) -> bool:
        """No: it is held against the log, which has all that it is made of."""
        return False


def refuse_stateful(view: View, what: str) -> None:
    """Refuse what a view that is made of events can't be asked for.

    Args:
        view: any view.
        what: that it can't be, in words.

    Raises:
        ConfigError: it is one (terminal).
    """
    if isinstance(view, StatefulView):
        raise ConfigError(
            f"view {view.name} is {view.made}, and can't be {what}",
            means="its documents are made of all events of the log, of which Postgres may have none any more",
            fix="fill a generation beside (`headwater rebuild FILE SINK`), look at that, and promote it or drop it",
        )
