"""What a window measures, from all of its values: exact, and of what the engine only sketches the bounds it must keep.

A distinct value costs eight bytes while its window is looked at, and so does a number of a percentile; everything else
is one value a window. Bounds are in docs/decisions/verify.md.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

from cdc.timed import Measure
from truth.bounds import stated
from truth.moments import moment_number
from truth.spark_sql import Shape, ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Five standard errors of HyperLogLog with 4,096 registers (1.04 / 64): one document in two million lies outside.
DISTINCT_ERROR = 5 * 1.04 / 64
# A KLL sketch of k = 200 is within 1.7 % of the rank in 99 of 100 cases: twice that is beyond five standard errors.
RANK_ERROR = 0.034
# So many values it keeps as they are.
KEPT_VALUES = 100
# A sum of doubles in another order: a rounding for each addition, of both sums.
_ROUNDING = 4 * 2.0**-53
_LONG = 1 << 63
_EXACT = Context(prec=200)
# Values that wait to be made distinct.
_PENDING = 1 << 20

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_MOMENTS = ("timestamp", "timestamp_ntz", "date")


class Kept(ABC):
    """What was seen of one measure in one window; each subclass is one kind."""

    @abstractmethod
    def add(self, value: Any) -> None:
        """One event's value: canonical, and not null."""

    @abstractmethod
    def result(self) -> Any:
        """The value of a document's field, or a bound (``truth.bounds``)."""


class _Count(Kept):
    def __init__(self) -> None:
        self._count = 0

    def add(self, value: Any) -> None:
        self._count += 1

    def result(self) -> int:
        return self._count


class _Whole(Kept):
    """A sum of whole numbers; null if it does not fit."""

    def __init__(self) -> None:
        self._sum: int | None = None

    def add(self, value: Any) -> None:
        self._sum = (self._sum or 0) + int(value)

    def result(self) -> int | None:
        return self._sum if self._sum is not None and -_LONG <= self._sum < _LONG else None


class _Decimals(Kept):
    """A sum of decimals, or their average, of the type that Spark gives it.

    Args:
        type_: of the result.
        given: of the values.
        average: whether it is one.
    """

    def __init__(self, type_: str, given: str, *, average: bool) -> None:
        self._type, self._average = _digits(type_), average
        precision, scale = _digits(given)
        # An average is refused where its sum does not fit what Spark's own sum of such decimals is.
        self._sum_type = (min(precision + 10, 38), scale) if average else self._type
        self._sum, self._count = Decimal(0), 0

    def add(self, value: Any) -> None:
        self._sum = _EXACT.add(self._sum, Decimal(value))
        self._count += 1

    def result(self) -> Any:
        if not self._count or not _fits(self._sum, self._sum_type):
            return None
        scale = Decimal(1).scaleb(-self._type[1])
        found = _EXACT.divide(self._sum, Decimal(self._count)) if self._average else self._sum
        rounded = found.quantize(scale, ROUND_HALF_UP, _EXACT)
        return format(rounded, "f") if _fits(rounded, self._type) else None


class _Doubles(Kept):
    """A sum of doubles, or an average of anything that becomes one: within the rounding of its additions."""

    def __init__(self, *, average: bool) -> None:
        self._average, self._count, self._sum, self._size = average, 0, 0.0, 0.0

    def add(self, value: Any) -> None:
        number = float(value)
        self._count += 1
        self._sum += number
        self._size += abs(number)

    def result(self) -> Any:
        if not self._count:
            return None
        over = self._count if self._average else 1
        found, slack = self._sum / over, _ROUNDING * (self._count + 1) * self._size / over
        if not math.isfinite(found) or not math.isfinite(slack):
            return _text(found)
        return stated(found - slack, found + slack)


class _Extreme(Kept):
    """A least or a greatest value.

    Args:
        order: what it is compared by.
        greatest: which one.
    """

    def __init__(self, order: Callable[[Any], Any], *, greatest: bool) -> None:
        self._order, self._greatest = order, greatest
        self._held: tuple[Any, Any] | None = None

    def add(self, value: Any) -> None:
        at = self._order(value)
        if self._held is None or (at > self._held[0] if self._greatest else at < self._held[0]):
            self._held = at, value

    def result(self) -> Any:
        return None if self._held is None else self._held[1]


class _Distinct(Kept):
    """How many texts there are, within five standard errors of the sketch."""

    def __init__(self) -> None:
        self._pending = set[int]()
        self._known: Any = None

    def add(self, value: Any) -> None:
        self._pending.add(int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest()))
        if len(self._pending) >= _PENDING:
            self._fold()

    def result(self) -> Any:
        if self._known is None:
            count = len(self._pending)
        else:
            self._fold()
            count = len(self._known)
        slack = max(1, math.ceil(count * DISTINCT_ERROR))
        return stated(max(0, count - slack), count + slack)

    def _fold(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        more = pa.array(self._pending, pa.uint64())
        self._known = more if self._known is None else pc.unique(pa.concat_arrays([self._known, more]))
        self._pending = set()


class _Rank(Kept):
    """A percentile: anything whose rank is near enough."""

    def __init__(self, rank: float) -> None:
        self._rank, self._values = rank, array("d")

    def add(self, value: Any) -> None:
        number = float(value)
        if not math.isnan(number):  # which has no rank
            self._values.append(number)

    def result(self) -> Any:
        count = len(self._values)
        if not count:
            return None
        slack = RANK_ERROR * count if count > KEPT_VALUES else 1e-6
        ranks = (math.ceil(self._rank * count + by) for by in (-slack, slack))
        low, high = _placed(self._values, [max(1, min(count, rank)) - 1 for rank in ranks])
        # An infinity is a number like any other to the sketch, and has its ranks: only where both ends are one is the
        # value known.
        return _text(low) if low == high and math.isinf(low) else stated(low, high)


def _placed(values: array[float], places: list[int]) -> list[float]:
    """Numbers at these places of their order: many as eight bytes each, few as Python sorts them, sooner done."""
    if len(values) <= _PENDING:
        ordered = sorted(values)
        return [ordered[place] for place in places]
    import pyarrow as pa
    import pyarrow.compute as pc

    held = pa.array(values, pa.float64())
    order = pc.array_sort_indices(held)
    return [float(held[order[place].as_py()].as_py()) for place in places]


class Plan:
    """How the measures of a view are had.

    Args:
        spark: a session.
        shape: of the events' rows.
        measures: by name.

    Attributes:
        asked: Spark SQL over an event's columns: of each measure one.
    """

    def __init__(self, spark: SparkSession, shape: Shape, measures: Mapping[str, Measure]) -> None:
        self._measures = dict(measures)
        asked = [_asked(measure) for measure in measures.values()]
        given = ask(spark, shape, [], asked).types
        self.asked = [_widened(*one) for one in zip(measures.values(), given, asked, strict=True)]
        totals = [_total(measure) for measure in measures.values()]
        self._kinds = list(zip(given, ask(spark, shape, [], totals).types, strict=True))

    def kept(self) -> list[Kept]:
        """For a new window: nothing seen yet."""
        return [
            _kept(measure, given, total)
            for measure, (given, total) in zip(self._measures.values(), self._kinds, strict=True)
        ]

    def results(self, kept: list[Kept]) -> dict[str, Any]:
        """Field -> value or bound."""
        return {name: one.result() for name, one in zip(self._measures, kept, strict=True)}


def _asked(measure: Measure) -> str:
    if measure.value == "*":
        return "1"
    if measure.function == "count":
        return f"CASE WHEN ({measure.value}) IS NOT NULL THEN 1 END"
    cast = {"approx_count_distinct": "string", "percentile": "double"}.get(measure.function)
    return f"CAST(({measure.value}) AS {cast})" if cast else f"({measure.value})"


def _widened(measure: Measure, given: str, asked: str) -> str:
    """A ``real`` is added as the double that it is, and not as the one that its shortest digits are."""
    return f"CAST({asked} AS double)" if measure.function in ("sum", "avg") and given == "float" else asked


def _total(measure: Measure) -> str:
    """Spark's own aggregate, of which only the type is asked."""
    return f"{measure.function}(({measure.value}))" if measure.function in ("sum", "avg") else "count(1)"


def _kept(measure: Measure, given: str, total: str) -> Kept:
    if measure.function == "count":
        return _Count()
    if measure.function == "approx_count_distinct":
        return _Distinct()
    if measure.function == "percentile":
        return _Rank(measure.rank)
    if measure.function in ("min", "max"):
        return _Extreme(_order(given), greatest=measure.function == "max")
    average = measure.function == "avg"
    if given.startswith("decimal"):
        return _Decimals(total, given, average=average)
    return _Whole() if given in _WHOLE and not average else _Doubles(average=average)


def _order(kind: str) -> Callable[[Any], Any]:
    if kind.startswith("decimal"):
        return Decimal
    if kind in _MOMENTS:
        return moment_number
    return _number if kind in ("float", "double") else lambda value: value


def _number(value: Any) -> tuple[bool, float, float]:
    """As Spark orders them: NaN is greater than all."""
    number = float(value)
    nan = math.isnan(number)
    return nan, 0.0 if nan else number, math.copysign(1.0, number)


def _text(value: float) -> Any:
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _digits(kind: str) -> tuple[int, int]:
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)


def _fits(value: Decimal, kind: tuple[int, int]) -> bool:
    return abs(value) < Decimal(10) ** (kind[0] - kind[1])
