-- A year of careers. Run it while the pipeline runs, and search again.
UPDATE companies SET name = 'Headwater AG' WHERE company_id = 1;        -- reaches everybody who works or worked there
UPDATE skills SET name = 'PostgreSQL' WHERE skill_id = 1;               -- and everybody who can do it
UPDATE people SET headline = 'Engineers love Kafka' WHERE person_id = 2;
UPDATE people SET name = 'Renamed Manager' WHERE person_id = 1;         -- on the profiles of two levels of reports
BEGIN;                                                                  -- a new job
UPDATE positions SET until = '2024-06-30' WHERE person_id = 3 AND until IS NULL;
INSERT INTO positions VALUES (1001, 3, 8, 'Head of Data', '2024-07-01', NULL);
UPDATE people SET employer_id = 8, manager_id = 5 WHERE person_id = 3;
COMMIT;
UPDATE people SET hidden = NOT hidden WHERE person_id IN (10, 11, 12);  -- leaves the index, or returns to it
UPDATE people SET manager_id = 4 WHERE manager_id = 2;                  -- a team moves to another manager
UPDATE person_skills SET endorsements = endorsements + 7 WHERE skill_id = 2;
UPDATE person_skills SET person_id = 20 WHERE person_id = 21            -- a key change that is a parent move
   AND skill_id NOT IN (SELECT skill_id FROM person_skills WHERE person_id = 20);
DELETE FROM person_skills WHERE person_id = 22;                         -- the sum of nothing is null
UPDATE positions SET person_id = 24 WHERE person_id = 23;               -- two accounts of one person are merged
DELETE FROM people WHERE person_id = 23;
UPDATE people SET person_id = 1025 WHERE person_id = 25;                -- a key change: positions, skills, reports follow
UPDATE skills SET skill_id = 103 WHERE skill_id = 3;
DELETE FROM skills WHERE skill_id = 4;
DELETE FROM companies WHERE company_id = 5;                             -- employers and positions lose it
UPDATE companies SET company_id = 106, industry = 'power' WHERE company_id = 6;
INSERT INTO people VALUES (61, 'New Comer', NULL, false, 1, 1);
INSERT INTO person_skills VALUES (61, 2, 1);
