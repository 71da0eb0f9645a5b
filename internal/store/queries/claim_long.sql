-- Jobs whose run began longer ago than their own timeout allows, or, of those without one, than
-- $1 ms; the longest first, $2 at most, with the ms since the run has last said something of itself, 0: it has not. A claim's jobs begin at most some seconds after it.
SELECT j.id, j.tenant_id, j.kind, coalesce(s.node, '') AS node, coalesce(j.timeout_ms, 0) AS timeout_ms,
       (extract(epoch FROM clock_timestamp() - c.started_at) * 1000)::bigint AS running_ms,
       coalesce((SELECT extract(epoch FROM clock_timestamp() - CASE WHEN isfinite(r.written_at) THEN r.written_at END) * 1000
                 FROM tenure.job_report r WHERE r.job_id = j.id AND r.turn = j.turn), 0)::bigint AS said_ms
FROM tenure.claim c
CROSS JOIN LATERAL unnest(c.job_ids) AS run (id)
JOIN tenure.job j ON j.id = run.id AND j.turn = c.turn
LEFT JOIN tenure.node_session s ON s.session_id = c.session_id
WHERE extract(epoch FROM clock_timestamp() - CASE WHEN isfinite(c.started_at) THEN c.started_at END) * 1000 > coalesce(j.timeout_ms, $1::bigint)
ORDER BY c.started_at, j.id
LIMIT $2;
