"""Dead letters: which stand, what they hold, writing their keys again, forgetting them (docs/decisions/letters.md)."""
