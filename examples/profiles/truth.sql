-- The documents of pipeline.yaml's view by plain SQL: what an application would otherwise ask for at every read.
SELECT 'profile' AS view, p.person_id::text AS id, jsonb_build_object(
    'person_id', p.person_id,
    'name', p.name,
    'headline', p.headline,
    'employer', (SELECT to_jsonb(c) FROM companies c WHERE c.company_id = p.employer_id),
    'manager', (
        SELECT jsonb_build_object('person_id', m.person_id, 'name', m.name, 'manager', (
            SELECT jsonb_build_object('person_id', mm.person_id, 'name', mm.name)
            FROM people mm WHERE mm.person_id = m.manager_id))
        FROM people m WHERE m.person_id = p.manager_id),
    'positions', (
        SELECT coalesce(jsonb_agg(jsonb_build_object('title', w.title, 'since', w.since, 'until', w.until, 'company', (
            SELECT jsonb_build_object('name', c.name, 'industry', c.industry)
            FROM companies c WHERE c.company_id = w.company_id)
        ) ORDER BY w.until DESC NULLS FIRST, w.since DESC, w.position_id), '[]')
        FROM positions w WHERE w.person_id = p.person_id),
    'skills', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'endorsements', k.endorsements, 'skill', jsonb_build_object('name', s.name)
        ) ORDER BY k.endorsements DESC, k.skill_id), '[]')
        FROM person_skills k JOIN skills s USING (skill_id) WHERE k.person_id = p.person_id),
    'endorsements', (SELECT sum(k.endorsements) FROM person_skills k WHERE k.person_id = p.person_id),
    'reports', (SELECT count(*) FROM people r WHERE r.manager_id = p.person_id),
    'working_since', (SELECT min(w.since) FROM positions w WHERE w.person_id = p.person_id),
    'skill_names', (
        SELECT coalesce(jsonb_agg(s.name ORDER BY k.endorsements DESC, k.skill_id), '[]')
        FROM person_skills k JOIN skills s USING (skill_id) WHERE k.person_id = p.person_id),
    'industries', (
        SELECT coalesce(jsonb_agg(industry ORDER BY industry COLLATE "C"), '[]') FROM (
            SELECT DISTINCT c.industry FROM positions w JOIN companies c USING (company_id)
            WHERE w.person_id = p.person_id) i),
    'leads', EXISTS (SELECT FROM people r WHERE r.manager_id = p.person_id)
) AS document
FROM people p
WHERE NOT p.hidden
