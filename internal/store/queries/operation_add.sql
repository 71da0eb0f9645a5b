-- Adds an operation; added once more, after a lost reply, it stays as it is. $1 id, $2 what is to be
-- done, $3 tenant, $4 kind, $5 text in the error, $6 group, $7 died before, or made before, each null: any, but none
-- from now on; $8 how
-- many in a second, null: as many as that goes, $9 who asks; of jobs to be cancelled $10 queue and $11 state; $12 tag and
-- $13 correlation id, each null: any. Programs of before do not heed the tag and correlation id of dead letters: they look for a
-- group that there is not, as its name begins with +, and change nothing.
INSERT INTO tenure.operation (id, action, tenant_id, kind, error, dead_group, died_before, per_second, asked_by, queue, job_state, tag, correlation_id, state, created_at)
SELECT $1, $2, $3, $4, $5, CASE WHEN $2 <> 'cancel' AND ($12::text IS NOT NULL OR $13::text IS NOT NULL) THEN '+' || coalesce($6, '') ELSE $6 END, least($7::timestamptz, now), $8, $9, $10, $11, $12, $13, CASE $2 WHEN 'cancel' THEN 'begun' ELSE 'running' END, now FROM clock_timestamp() AS now
ON CONFLICT (id) DO NOTHING;
