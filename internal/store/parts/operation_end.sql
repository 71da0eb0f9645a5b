-- Notes what became of an operation that "ended", for the audit.
INSERT INTO tenure.audit (who, action, tenant_id, subject, detail)
SELECT asked_by, CASE action WHEN 'cancel' THEN 'jobs.cancel' ELSE 'dead_letters.' || action END, tenant_id, 'operation ' || id,
    jsonb_build_object('stage', 'ended', 'done', done, 'key_taken', key_taken, 'skipped', left_dead)
FROM ended WHERE ended_at IS NOT NULL
