"""Where one row is on its way: in Postgres, in its topic, in each sink."""
