-- The documents of pipeline.yaml's views by plain SQL: what an application would otherwise ask for at every read.
SELECT 'home_timeline' AS view, u.user_id::text AS id, jsonb_build_object(
    'user_id', u.user_id,
    'handle', u.handle,
    'follows', (
        SELECT coalesce(jsonb_agg(jsonb_build_object('since', f.since, 'followee', jsonb_build_object(
            'user_id', x.user_id,
            'handle', x.handle,
            'tweets', (
                SELECT coalesce(jsonb_agg(jsonb_build_object('tweet_id', tweet_id, 'posted', posted)), '[]') FROM (
                    SELECT t.tweet_id, (to_jsonb(t.posted AT TIME ZONE 'UTC') #>> '{}') || 'Z' AS posted FROM tweets t
                    WHERE t.author_id = x.user_id ORDER BY t.posted DESC, t.tweet_id DESC LIMIT 20) newest)
        )) ORDER BY f.followee_id), '[]')
        FROM follows f JOIN users x ON x.user_id = f.followee_id WHERE f.follower_id = u.user_id),
    'following', (SELECT count(*) FROM follows f WHERE f.follower_id = u.user_id),
    'followers', (SELECT count(*) FROM follows f WHERE f.followee_id = u.user_id),
    'timeline', (
        SELECT coalesce(jsonb_agg(to_jsonb(newest)), '[]') FROM (
            SELECT (to_jsonb(t.posted AT TIME ZONE 'UTC') #>> '{}') || 'Z' AS posted, t.tweet_id, x.handle AS by, t.body
            FROM follows f JOIN users x ON x.user_id = f.followee_id JOIN tweets t ON t.author_id = x.user_id
            WHERE f.follower_id = u.user_id ORDER BY t.posted DESC, t.tweet_id DESC LIMIT 20) newest)
) AS document
FROM users u
UNION ALL
SELECT 'tweet_card', t.tweet_id::text, jsonb_build_object(
    'tweet_id', t.tweet_id,
    'author_id', t.author_id,
    'posted', (to_jsonb(t.posted AT TIME ZONE 'UTC') #>> '{}') || 'Z',
    'body', t.body,
    'reply_to', t.reply_to,
    'author', (SELECT to_jsonb(a) FROM users a WHERE a.user_id = t.author_id),
    'in_reply_to', (
        SELECT jsonb_build_object('tweet_id', r.tweet_id, 'body', r.body, 'author', jsonb_build_object('handle', a.handle))
        FROM tweets r JOIN users a ON a.user_id = r.author_id WHERE r.tweet_id = t.reply_to),
    'likes', (SELECT count(*) FROM likes l WHERE l.tweet_id = t.tweet_id),
    'people', (SELECT count(DISTINCT l.user_id) FROM likes l WHERE l.tweet_id = t.tweet_id),
    'hearts', (SELECT count(*) FROM likes l WHERE l.tweet_id = t.tweet_id AND l.emoji = '❤'),
    'replies', (SELECT count(*) FROM tweets r WHERE r.reply_to = t.tweet_id)
)
FROM tweets t
