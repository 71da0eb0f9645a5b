-- Chooses tenants whose jobs of a topic are to be acquired, for external_acquire behind it in the same
-- transaction, which finds them in a setting. $1 topic, $2 tenants to choose among, or null, $3 the tenant
-- to begin behind, or null: they are chosen by chance, $4 how many tenants to look at, $5 how many to choose.
-- It leaves out tenants that rest, tenants whose jobs are all in frozen queues or wait behind others of their exclusive keys, and
-- tenants that have as many jobs locked as they may: expired locks count until they are freed, as their workers may extend them. A tenant with such a bound is kept for this
-- transaction, by its row or, if it has none, by one that its name leads to, so that no other counts the same jobs; one that
-- somebody else keeps is left out.
-- looked: the tenant to go on behind; null: there is none behind.
WITH RECURSIVE named AS (
    SELECT (SELECT min(j.tenant_id) FROM tenure.external_job j
            WHERE j.kind = $1 AND j.lock_expires_at IS NULL AND j.due_at IS NULL AND j.tenant_id > coalesce($3, '') COLLATE "C") AS tenant_id, 1 AS n
    WHERE $2::text[] IS NULL
    UNION ALL
    SELECT (SELECT min(j.tenant_id) FROM tenure.external_job j
            WHERE j.kind = $1 AND j.lock_expires_at IS NULL AND j.due_at IS NULL AND j.tenant_id > named.tenant_id), n + 1
    FROM named WHERE named.tenant_id IS NOT NULL AND n < $4),
found AS MATERIALIZED (
    SELECT tenant_id FROM named WHERE tenant_id IS NOT NULL
    UNION ALL
    SELECT DISTINCT given.tenant_id COLLATE "C" FROM unnest($2::text[]) AS given (tenant_id)
    WHERE EXISTS (SELECT FROM tenure.external_job j WHERE j.kind = $1 AND j.tenant_id = given.tenant_id AND j.lock_expires_at IS NULL AND j.due_at IS NULL)),
chosen AS MATERIALIZED (
    SELECT found.tenant_id, bound.room IS NOT NULL AS bounded, t.tenant_id IS NOT NULL AS has_row
    FROM found
    LEFT JOIN tenure.tenant t ON t.tenant_id = found.tenant_id
    CROSS JOIN LATERAL (SELECT tenure.external_room(found.tenant_id, $1) AS room) bound
    WHERE (t.tenant_id IS NULL OR t.state = 'active' AND NOT t.frozen)
      AND EXISTS (SELECT FROM tenure.acquire_lock WHERE name = 'acquire' AND NOT paused)
      AND NOT EXISTS (SELECT FROM tenure.frozen WHERE scope = 'kind' AND name = $1)
      AND (NOT EXISTS (SELECT FROM tenure.frozen WHERE scope = 'queue')
           OR EXISTS (SELECT FROM tenure.external_job j WHERE j.kind = $1 AND j.tenant_id = found.tenant_id AND j.lock_expires_at IS NULL AND j.due_at IS NULL
                        AND j.queue NOT IN (SELECT f.name FROM tenure.frozen f WHERE f.scope = 'queue')))
      AND (NOT EXISTS (SELECT FROM tenure.external_job j WHERE {{keyed}}) -- once for all
           OR NOT EXISTS (SELECT FROM tenure.external_job j WHERE j.tenant_id = found.tenant_id AND {{keyed}})
           OR EXISTS (SELECT FROM tenure.external_next(found.tenant_id, $1, 1, false)))
      AND (bound.room IS NULL OR bound.room > 0)
    ORDER BY CASE WHEN $3 IS NULL THEN random() END, found.tenant_id -- behind the join, which may keep no order
    LIMIT $5),
kept AS MATERIALIZED (
    SELECT t.tenant_id FROM tenure.tenant t
    WHERE t.tenant_id IN (SELECT tenant_id FROM chosen WHERE bounded)
    ORDER BY t.tenant_id
    FOR NO KEY UPDATE SKIP LOCKED),
slots AS MATERIALIZED (
    SELECT g.slot FROM tenure.external_gate g
    WHERE g.slot IN (SELECT hashtext(tenant_id) & 1023 FROM chosen WHERE bounded AND NOT has_row)
    ORDER BY g.slot
    FOR NO KEY UPDATE SKIP LOCKED),
without_row AS (SELECT tenant_id FROM chosen WHERE NOT has_row AND hashtext(tenant_id) & 1023 IN (SELECT slot FROM slots))
SELECT set_config('tenure.chosen', coalesce((
           SELECT array_agg(tenant_id) FROM chosen
           WHERE NOT bounded OR tenant_id IN (SELECT tenant_id FROM kept UNION ALL SELECT tenant_id FROM without_row)), '{}')::text, true) AS chosen,
       CASE WHEN $3 IS NOT NULL AND (SELECT count(*) FROM chosen) = $5 THEN (SELECT max(tenant_id) FROM chosen)
            WHEN (SELECT count(tenant_id) FROM named) = $4 THEN (SELECT max(tenant_id) FROM named) END AS looked;
