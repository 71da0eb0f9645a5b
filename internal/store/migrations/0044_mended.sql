-- What broke the bounds of 0042 before these were there, mended: numbers get the nearest value that is within, names are
-- cut. It reads each table with jobs once, and keeps nobody from what else stands there. Programs of before go on working.

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
                tenant_id = left(tenant_id, 64), queue = left(queue, 64), kind = left(kind, 64), exclusive_key = left(exclusive_key, 256),
                unique_key = CASE WHEN octet_length(unique_key) <= 1024 THEN unique_key END, correlation_id = left(correlation_id, 256)
            WHERE turn NOT BETWEEN 0 AND 2000000000 OR attempt NOT BETWEEN 0 AND 30000 OR losses NOT BETWEEN 0 AND 30000
                OR octet_length(tenant_id) > 256 OR octet_length(queue) > 256 OR octet_length(kind) > 256
                OR octet_length(exclusive_key) > 1024 OR octet_length(unique_key) > 1024 OR octet_length(correlation_id) > 1024', name);
    END LOOP;
END
$$;
-- +goose StatementEnd
UPDATE tenure.schedule SET tenant_id = left(tenant_id, 64), queue = left(queue, 64), kind = left(kind, 64)
WHERE octet_length(tenant_id) > 256 OR octet_length(queue) > 256 OR octet_length(kind) > 256;
UPDATE tenure.acquire_lock SET epoch = least(epoch, 3000000000000000000), renew_seq = least(renew_seq, 3000000000000000000),
    removals = least(removals, 3000000000000000000), limit_changes = least(limit_changes, 3000000000000000000)
WHERE greatest(epoch, renew_seq, removals, limit_changes) > 4000000000000000000;

-- +goose Down
SELECT;
