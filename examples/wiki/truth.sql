-- The documents of pipeline.yaml's view by plain SQL: what an application would otherwise ask for at every read.
SELECT 'page' AS view, p.page_id::text AS id, jsonb_build_object(
    'page_id', p.page_id,
    'title', p.title,
    'current', (
        SELECT jsonb_build_object(
            'edit_id', e.edit_id,
            'edited_at', (to_jsonb(e.edited_at AT TIME ZONE 'UTC') #>> '{}') || 'Z',
            'body', e.body,
            'editor', (SELECT to_jsonb(w) FROM editors w WHERE w.editor_id = e.editor_id))
        FROM edits e WHERE e.edit_id = p.current_edit),
    'history', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'edit_id', h.edit_id,
            'edited_at', (to_jsonb(h.edited_at AT TIME ZONE 'UTC') #>> '{}') || 'Z',
            'minor', h.minor,
            'summary', h.summary,
            'delta', h.delta,
            'editor', (SELECT jsonb_build_object('name', w.name) FROM editors w WHERE w.editor_id = h.editor_id)
        ) ORDER BY h.edited_at DESC, h.edit_id DESC), '[]') FROM (
            SELECT e.* FROM edits e WHERE e.page_id = p.page_id ORDER BY e.edited_at DESC, e.edit_id DESC LIMIT 10) h),
    'edits_total', (SELECT count(*) FROM edits e WHERE e.page_id = p.page_id),
    'minor_edits', (SELECT count(*) FROM edits e WHERE e.page_id = p.page_id AND e.minor),
    'first_edited', (
        SELECT (to_jsonb(min(e.edited_at) AT TIME ZONE 'UTC') #>> '{}') || 'Z' FROM edits e WHERE e.page_id = p.page_id),
    'last_edited', (
        SELECT (to_jsonb(max(e.edited_at) AT TIME ZONE 'UTC') #>> '{}') || 'Z' FROM edits e WHERE e.page_id = p.page_id),
    'contributors', (SELECT count(DISTINCT e.editor_id) FROM edits e WHERE e.page_id = p.page_id),
    'length', (SELECT sum(e.delta) FROM edits e WHERE e.page_id = p.page_id),
    'average_delta', (SELECT avg(e.delta)::float8 FROM edits e WHERE e.page_id = p.page_id),
    'stub', coalesce((SELECT length(e.body) < 100 FROM edits e WHERE e.edit_id = p.current_edit), true),
    'disputed', (
        SELECT count(*) >= 3 FROM (
            SELECT e.* FROM edits e WHERE e.page_id = p.page_id ORDER BY e.edited_at DESC, e.edit_id DESC LIMIT 10) h
        WHERE h.summary = 'rv')
) AS document
FROM pages p
