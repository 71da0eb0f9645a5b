-- Forgets tenants whose last finished job is kept no more, as its day is gone.
DELETE FROM tenure.seen_tenant
WHERE tenant_id <> '' AND until < (
    SELECT min(to_date(substring(c.relname FROM 'completed_job_(\d{8})$'), 'YYYYMMDD'))::timestamp AT TIME ZONE 'UTC' - interval '1 day'
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'tenure.completed_job'::regclass AND c.relname ~ '^completed_job_\d{8}$');
