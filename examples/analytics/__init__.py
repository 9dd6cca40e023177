"""Orders to be reported on: a dbt project over a warehouse's current tables and its history. See README.md."""
