-- Of some tags the one that fewest jobs have, as far as that is seen at a glance. $1 tenant or null,
-- $2 tags, each once.
SELECT wanted.tag
FROM unnest($2::text[]) AS wanted (tag)
ORDER BY (SELECT count(*) FROM (SELECT FROM tenure.job_tag t WHERE t.tag = wanted.tag AND ($1::text IS NULL OR t.tenant_id = $1) LIMIT 10000) few)
LIMIT 1;
