-- Of which kind most of the newest dead letters are, how many of how many, and when the last of that kind died. $1 how many to
-- look at.
SELECT kind, count(*), sum(count(*)) OVER ()::bigint AS looked_at, max(died_at) FILTER (WHERE isfinite(died_at))
FROM (SELECT kind, died_at FROM tenure.dead_letter_job ORDER BY id DESC LIMIT $1) d
GROUP BY kind ORDER BY count(*) DESC, kind LIMIT 1;
