"""The WAL that the slot makes Postgres keep: how much may it be, when is it too much, who holds it, and what then."""
