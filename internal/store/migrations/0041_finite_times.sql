-- Bounds of the times by which nodes decide who is alive and who holds the lock: no clock can do with 'infinity'.
-- Programs of before go on working.

-- +goose Up
-- Whoever has set such a time by hand, it is over.
UPDATE tenure.acquire_lock SET taken_at = CASE WHEN isfinite(taken_at) THEN taken_at END,
    renewed_at = CASE WHEN isfinite(renewed_at) THEN renewed_at ELSE to_timestamp(0) END,
    expires_at = CASE WHEN isfinite(expires_at) THEN expires_at ELSE to_timestamp(0) END,
    reserved_until = CASE WHEN isfinite(reserved_until) THEN reserved_until ELSE to_timestamp(0) END
WHERE NOT (isfinite(coalesce(taken_at, renewed_at)) AND isfinite(renewed_at) AND isfinite(expires_at) AND isfinite(reserved_until));
UPDATE tenure.node_session SET started_at = CASE WHEN isfinite(started_at) THEN started_at ELSE to_timestamp(0) END,
    last_seen = CASE WHEN isfinite(last_seen) THEN last_seen ELSE to_timestamp(0) END,
    expires_at = CASE WHEN isfinite(expires_at) THEN expires_at ELSE to_timestamp(0) END
WHERE NOT (isfinite(started_at) AND isfinite(last_seen) AND isfinite(expires_at));
ALTER TABLE tenure.acquire_lock ADD CONSTRAINT acquire_lock_time CHECK (isfinite(taken_at) AND isfinite(renewed_at) AND isfinite(expires_at) AND isfinite(reserved_until));
ALTER TABLE tenure.node_session ADD CONSTRAINT node_session_time CHECK (isfinite(started_at) AND isfinite(last_seen) AND isfinite(expires_at));

-- +goose Down
ALTER TABLE tenure.node_session DROP CONSTRAINT node_session_time;
ALTER TABLE tenure.acquire_lock DROP CONSTRAINT acquire_lock_time;
