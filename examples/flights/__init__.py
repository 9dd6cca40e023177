"""New York's departures of 2013: five related tables, 367,687 rows."""
