-- Who follows whom, who wrote what, who liked it. Every statement can be run again.

CREATE TABLE IF NOT EXISTS users (
    user_id bigint PRIMARY KEY,
    handle  text NOT NULL UNIQUE,
    name    text NOT NULL
);

CREATE TABLE IF NOT EXISTS follows (
    follower_id bigint NOT NULL REFERENCES users ON UPDATE CASCADE ON DELETE CASCADE,
    followee_id bigint NOT NULL REFERENCES users ON UPDATE CASCADE ON DELETE CASCADE,
    since       date NOT NULL,
    PRIMARY KEY (follower_id, followee_id)
);

CREATE TABLE IF NOT EXISTS tweets (
    tweet_id  bigint PRIMARY KEY,
    author_id bigint NOT NULL REFERENCES users ON UPDATE CASCADE ON DELETE CASCADE,
    posted    timestamptz NOT NULL,
    body      text NOT NULL,
    reply_to  bigint REFERENCES tweets ON UPDATE CASCADE ON DELETE SET NULL
);

CREATE TABLE IF NOT EXISTS likes (
    tweet_id bigint NOT NULL REFERENCES tweets ON UPDATE CASCADE ON DELETE CASCADE,
    user_id  bigint NOT NULL REFERENCES users ON UPDATE CASCADE ON DELETE CASCADE,
    emoji    text NOT NULL,                   -- one person may leave several: people are not likes
    PRIMARY KEY (tweet_id, user_id, emoji)
);
