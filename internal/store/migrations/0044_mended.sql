-- What broke the bounds of 0042 before these were there, mended: numbers get the nearest value that is within; of names
-- that are too long the beginning stays, with a hash behind it, so that none is taken for another one. It reads each
-- table with jobs once, and keeps nobody from what else stands there. Programs of before go on working.

-- +goose Up
DELETE FROM tenure.unique_job WHERE octet_length(key) > 1024;
-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['job', 'timer_job', 'external_job', 'suspended_job', 'dead_letter_job'] LOOP
        EXECUTE format('UPDATE tenure.%I
            SET turn = least(greatest(turn, 0), 2000000000), attempt = least(greatest(attempt, 0), 30000), losses = least(greatest(losses, 0), 30000),
                tenant_id = CASE WHEN octet_length(tenant_id) <= 256 THEN tenant_id ELSE left(tenant_id, 40) || ''~'' || md5(tenant_id) END,
                queue = CASE WHEN octet_length(queue) <= 256 THEN queue ELSE left(queue, 40) || ''~'' || md5(queue) END,
                kind = CASE WHEN octet_length(kind) <= 256 THEN kind ELSE left(kind, 40) || ''~'' || md5(kind) END,
                exclusive_key = CASE WHEN octet_length(exclusive_key) <= 1024 THEN exclusive_key ELSE left(exclusive_key, 200) || ''~'' || md5(exclusive_key) END,
                unique_key = CASE WHEN octet_length(unique_key) <= 1024 THEN unique_key END,
                correlation_id = CASE WHEN octet_length(correlation_id) <= 1024 THEN correlation_id ELSE left(correlation_id, 200) || ''~'' || md5(correlation_id) END
            WHERE turn NOT BETWEEN 0 AND 2000000000 OR attempt NOT BETWEEN 0 AND 30000 OR losses NOT BETWEEN 0 AND 30000
                OR octet_length(tenant_id) > 256 OR octet_length(queue) > 256 OR octet_length(kind) > 256
                OR octet_length(exclusive_key) > 1024 OR octet_length(unique_key) > 1024 OR octet_length(correlation_id) > 1024', name);
    END LOOP;
END
$$;
-- +goose StatementEnd
UPDATE tenure.schedule SET
    tenant_id = CASE WHEN octet_length(tenant_id) <= 256 THEN tenant_id ELSE left(tenant_id, 40) || '~' || md5(tenant_id) END,
    queue = CASE WHEN octet_length(queue) <= 256 THEN queue ELSE left(queue, 40) || '~' || md5(queue) END,
    kind = CASE WHEN octet_length(kind) <= 256 THEN kind ELSE left(kind, 40) || '~' || md5(kind) END
WHERE octet_length(tenant_id) > 256 OR octet_length(queue) > 256 OR octet_length(kind) > 256;
UPDATE tenure.acquire_lock SET epoch = least(greatest(epoch, 0), 3000000000000000000), renew_seq = least(greatest(renew_seq, 0), 3000000000000000000),
    removals = least(greatest(removals, 0), 3000000000000000000), limit_changes = least(greatest(limit_changes, 0), 3000000000000000000)
WHERE greatest(epoch, renew_seq, removals, limit_changes) > 4000000000000000000 OR least(epoch, renew_seq, removals, limit_changes) < 0;
UPDATE tenure.job_limit SET per_ms = 31622400000 WHERE per_ms > 31622400000;

-- +goose Down
SELECT;
