-- What happens on a social network in a minute. Run it while the pipeline runs, and read the documents again.
BEGIN;                                                              -- the celebrity writes: every follower's timeline
INSERT INTO tweets VALUES (1001, 1, '2024-05-02 09:00:00+00', 'a new one 🎉', NULL);
INSERT INTO likes SELECT 1001, user_id, '❤' FROM users WHERE user_id BETWEEN 2 AND 9;
INSERT INTO likes VALUES (1001, 2, '👍');                           -- nine likes of eight people
COMMIT;
UPDATE tweets SET body = body || ' (edited)' WHERE tweet_id IN (1, 2, 3);
UPDATE users SET handle = 'countess', name = 'Ada L.' WHERE user_id = 1;  -- on every tweet and in every timeline
DELETE FROM likes WHERE tweet_id = 1001 AND user_id = 3;
DELETE FROM tweets WHERE tweet_id = 4;                              -- its likes go with it, replies to it lose it
DELETE FROM follows WHERE follower_id = 5;                          -- nobody left to follow: an empty timeline
INSERT INTO follows VALUES (5, 2, '2024-05-02');
UPDATE follows SET followee_id = 12 WHERE follower_id = 6 AND followee_id = 1;   -- a key change that is a parent move
UPDATE tweets SET author_id = 3 WHERE tweet_id = 5;                 -- a parent move: from one author to another
UPDATE tweets SET tweet_id = 1006 WHERE tweet_id = 6;               -- a key change, with its likes and replies
UPDATE likes SET tweet_id = 7 WHERE tweet_id = 1001 AND emoji = '👍';            -- a like moves to another tweet
UPDATE users SET user_id = 1007 WHERE user_id = 7;                  -- a key change that moves three tables' rows
DELETE FROM users WHERE user_id = 8;                                -- with tweets, likes, and both ends of follows
INSERT INTO users VALUES (26, 'newcomer', 'New Comer');             -- follows nobody: still has a document
