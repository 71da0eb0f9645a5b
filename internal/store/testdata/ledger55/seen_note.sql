-- Notes whose jobs finished from $1 to $2, and that this was looked at. Of a tenant that is noted it is written once a day.
WITH noted AS (
    INSERT INTO tenure.seen_tenant AS s (tenant_id, until)
    SELECT j.tenant_id, max(j.finished_at) FROM tenure.completed_job j
    WHERE j.finished_at >= $1::timestamptz AND j.finished_at < $2::timestamptz
    GROUP BY j.tenant_id ORDER BY j.tenant_id
    ON CONFLICT (tenant_id) DO UPDATE SET until = excluded.until WHERE s.until < excluded.until - interval '1 day')
INSERT INTO tenure.seen_tenant (tenant_id, until) VALUES ('', $2)
ON CONFLICT (tenant_id) DO UPDATE SET until = excluded.until;
