"""What the catalogue of Postgres says about the tables that are captured."""
