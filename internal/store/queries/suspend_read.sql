-- Reads on in one of the tables of unfinished jobs, $1, by id, and shows the ids of those that are chosen. $2 the id to
-- read after, $3 how many to look at, $4 tenant, $5 kind, $6 queue, $7 correlation id, each or null, $8 made before,
-- or null, as which those count, too, whose time is still to come, as of a clock that ran ahead, $9 state, $10 tag, each or null, $11 leave out those that somebody wants cancelled. One more row, chosen for nothing, has the last id that was looked
-- at, null behind the last one, and the time now.
WITH page AS MATERIALIZED (
    (SELECT id, turn, tenant_id, kind, queue, correlation_id, created_at, NULL::text AS state FROM tenure.job
     WHERE $1 = 'job' AND id > $2 ORDER BY id LIMIT $3)
    UNION ALL
    (SELECT id, turn, tenant_id, kind, queue, correlation_id, created_at, {{timer_state}} FROM tenure.timer_job
     WHERE $1 = 'timer_job' AND id > $2 ORDER BY id LIMIT $3)
    UNION ALL
    (SELECT id, turn, tenant_id, kind, queue, correlation_id, created_at, {{external_state}} FROM tenure.external_job
     WHERE $1 = 'external_job' AND id > $2 ORDER BY id LIMIT $3)
    UNION ALL
    (SELECT id, turn, tenant_id, kind, queue, correlation_id, created_at, 'suspended' FROM tenure.suspended_job
     WHERE $1 = 'suspended_job' AND id > $2 ORDER BY id LIMIT $3)),
claimed AS MATERIALIZED (
    {{flying}}
    WHERE $1 = 'job' AND $9::text IS NOT NULL)
SELECT p.id, true AS chosen, NULL::timestamptz AS now
FROM page p LEFT JOIN claimed c ON c.id = p.id AND c.turn = p.turn
WHERE ($4::text IS NULL OR p.tenant_id = $4) AND ($5::text IS NULL OR p.kind = $5) AND ($6::text IS NULL OR p.queue = $6)
  AND ($7::text IS NULL OR p.correlation_id = $7) AND ($8::timestamptz IS NULL OR p.created_at < $8 OR p.created_at > clock_timestamp())
  AND ($9 IS NULL OR $9 = coalesce(p.state, CASE WHEN c.id IS NULL THEN 'waiting' WHEN c.started_at IS NULL THEN 'claimed' ELSE 'running' END))
  AND ($10::text IS NULL OR EXISTS (SELECT FROM tenure.job_tag g WHERE g.tenant_id = p.tenant_id AND g.tag = $10 AND g.job_id = p.id))
  AND NOT ($11::boolean AND EXISTS (SELECT FROM tenure.cancel_request r WHERE r.job_id = p.id))
UNION ALL
SELECT max(id), false, clock_timestamp() FROM page;
