CREATE TABLE IF NOT EXISTS outbox (
  id            uuid PRIMARY KEY,
  aggregatetype text NOT NULL,
  aggregateid   text NOT NULL,
  type          text NOT NULL,
  payload       jsonb NOT NULL,
  at            timestamptz NOT NULL
);
