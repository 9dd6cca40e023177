"""Readers of a sink see another generation, as far as its register knows."""

from __future__ import annotations

from spark.disk.register import Register


def promoted(register: Register, number: int) -> None:
    """As a promotion leaves it, from its beginning to its end."""
    if register.get(number).stage == "filling":
        register.move(number, "ready")
    register.begin_promotion(number, register.living())
    register.promote(number)
