-- Where the jobs $1 wait, of which somebody says that they were enqueued, each lane once; and in how many ms the
-- first of them is due that is for later. What is not there was claimed before, or never was.
SELECT DISTINCT j.queue, j.tenant_id, j.priority, NULL::bigint AS due_ms
FROM tenure.job j WHERE j.id = ANY ($1::bigint[])
UNION ALL
SELECT '', '', 0, (extract(epoch FROM least(min(t.due_at), clock_timestamp() + interval '1 day') - clock_timestamp()) * 1000)::bigint
FROM tenure.timer_job t WHERE t.id = ANY ($1::bigint[])
HAVING count(*) > 0;
