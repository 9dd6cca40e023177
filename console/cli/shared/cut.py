"""Texts that stand among others, cut to some length. Needs nothing, so that no verb starts later for it."""

from __future__ import annotations


def cut(text: str, most: int) -> str:
    """The beginning of a text that is longer than so many characters, with a sign of it."""
    return text if len(text) <= most else text[:most] + "…"


def shorter(text: str, most: int = 100) -> str:
    """A text that stands among others, no longer than so many characters: a key may be as long as a row. ``--json`` and
    the verbs that show one thing have all of it."""
    return text if len(text) <= most else f"{cut(text, most)} ({len(text):,} characters)"
