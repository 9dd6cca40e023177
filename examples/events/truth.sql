-- The same documents by plain SQL: view, a name, document. Without `late`, which says how they came to be.
WITH page AS (
  SELECT *, payload->>'ip' AS ip, payload->>'user' AS who, date_trunc('hour', at, 'UTC') AS hour FROM outbox WHERE aggregatetype = 'page'
), cube AS (
  SELECT CASE WHEN grouping(ip) = 0 THEN 'ip' WHEN grouping(aggregateid) = 0 THEN 'page' ELSE '' END AS part,
         ip, aggregateid, hour, count(*) AS views, count(DISTINCT who) AS people,
         percentile_disc(0.95) WITHIN GROUP (ORDER BY (payload->>'ms')::int) AS p95
  FROM page GROUP BY GROUPING SETS ((ip, hour), (aggregateid, hour), (hour))
), begun AS (
  SELECT who, at, CASE WHEN at < lag(at) OVER (PARTITION BY who ORDER BY at) + interval '10 minutes' THEN 0 ELSE 1 END AS begins FROM page
), numbered AS (
  SELECT who, at, sum(begins) OVER (PARTITION BY who ORDER BY at RANGE UNBOUNDED PRECEDING) AS session FROM begun
), failed AS (
  SELECT id, aggregateid, at FROM outbox WHERE type = 'failed'
)
SELECT 'views_by_hour', row_number() OVER ()::text, jsonb_build_object(
  'grouping', part, 'ip', ip, 'page', aggregateid, 'window_start', hour, 'window_end', hour + interval '1 hour',
  'views', views, 'people', people, 'ms_p95', p95) FROM cube
UNION ALL
SELECT 'session', row_number() OVER ()::text, jsonb_build_object(
  'user', who, 'window_start', min(at), 'window_end', max(at) + interval '10 minutes', 'views', count(*))
FROM numbered GROUP BY who, session
UNION ALL
SELECT 'delays', row_number() OVER ()::text, jsonb_build_object(
  'origin', payload->>'origin', 'window_start', date_trunc('hour', at, 'UTC'), 'window_end', date_trunc('hour', at, 'UTC') + interval '1 hour',
  'flights', count(*), 'delayed', count(*) FILTER (WHERE (payload->>'delay')::int > 15), 'worst', max((payload->>'delay')::int),
  'wind', avg((payload->>'wind')::decimal(5,1))::decimal(9,5)::text)
FROM outbox WHERE type = 'departed' GROUP BY payload->>'origin', date_trunc('hour', at, 'UTC')
UNION ALL
SELECT 'search', s.id::text, jsonb_build_object(
  'key', s.aggregateid, 'at', s.at, 'words', s.payload->>'words', 'followed', count(c.id) > 0, 'count', count(c.id),
  'then', coalesce(jsonb_agg(jsonb_build_object('at', c.at, 'page', c.payload->>'page') ORDER BY c.at, c.id) FILTER (WHERE c.id IS NOT NULL), '[]'))
FROM outbox s LEFT JOIN outbox c ON c.aggregateid = s.aggregateid AND c.type = 'clicked' AND c.at BETWEEN s.at AND s.at + interval '15 minutes'
WHERE s.type = 'searched' GROUP BY s.id, s.aggregateid, s.at, s.payload
UNION ALL
SELECT 'unpaid', o.id::text, jsonb_build_object('key', o.aggregateid, 'at', o.at, 'total', o.payload->>'total')
FROM outbox o WHERE o.type = 'ordered' AND NOT EXISTS (
  SELECT FROM outbox p WHERE p.aggregateid = o.aggregateid AND p.type = 'paid' AND p.at BETWEEN o.at AND o.at + interval '10 minutes')
UNION ALL
SELECT 'guessing', a.id::text, jsonb_build_object('key', a.aggregateid, 'at', a.at, 'since', min(b.at), 'count', count(*))
FROM failed a JOIN failed b ON b.aggregateid = a.aggregateid AND b.at > a.at - interval '5 minutes' AND (b.at, b.id) <= (a.at, a.id)
GROUP BY a.id, a.aggregateid, a.at HAVING count(*) >= 3
