-- An hour in the life of a wiki. Run it while the pipeline runs, and read the pages again.
BEGIN;                                                              -- an edit: its row, and the page points at it
INSERT INTO edits VALUES (1001, 1, 3, '2024-06-01 10:00:00.25+00', false, 'more', 12, 'A new text.');
UPDATE pages SET current_edit = 1001 WHERE page_id = 1;
COMMIT;
BEGIN;                                                              -- vandalism, and it is reverted
INSERT INTO edits VALUES (1002, 2, NULL, '2024-06-01 10:05:00+00', false, NULL, -500, 'lol');
UPDATE pages SET current_edit = 1002 WHERE page_id = 2;
COMMIT;
BEGIN;
INSERT INTO edits SELECT 1003, 2, 5, '2024-06-01 10:06:00+00', true, 'rv', 500, body
  FROM edits WHERE page_id = 2 AND edit_id < 1000 ORDER BY edit_id DESC LIMIT 1;
UPDATE pages SET current_edit = 1003 WHERE page_id = 2;
COMMIT;
DELETE FROM edits WHERE edit_id = 1002;                             -- oversight: as if it had never been
UPDATE edits SET body = body || ' (amended)', delta = delta + 10 WHERE edit_id = 1001;
UPDATE editors SET name = 'Renamed' WHERE editor_id = 5;            -- on every page that shows an edit of theirs
DELETE FROM editors WHERE editor_id = 6;                            -- their edits become anonymous
UPDATE edits SET page_id = 4 WHERE page_id = 3 AND edit_id % 2 = 0; -- a merge of histories: edits move to another page
UPDATE pages SET current_edit = (SELECT max(edit_id) FROM edits WHERE page_id = 4) WHERE page_id = 4;
UPDATE pages SET page_id = 105 WHERE page_id = 5;                   -- a key change: all its edits come along
UPDATE edits SET edit_id = 1100 WHERE edit_id = (SELECT current_edit FROM pages WHERE page_id = 6);
                                                                    -- the page now points at an edit that is not there
UPDATE editors SET editor_id = 107 WHERE editor_id = 7;
DELETE FROM pages WHERE page_id = 8;
INSERT INTO pages VALUES (11, 'Newly made', NULL);                  -- a page without an edit is a document too
