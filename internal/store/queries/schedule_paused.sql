-- The schedules that are paused, with when and by whom as far as the audit has it; of one for every tenant, whose tenant is
-- empty, that one only.
SELECT s.tenant_id, s.name, coalesce(a.who, ''), CASE WHEN isfinite(a.at) THEN a.at END
FROM tenure.schedule s
LEFT JOIN (
    SELECT DISTINCT ON (tenant_id, subject) tenant_id, subject, who, at FROM tenure.audit
    WHERE action = 'schedule.pause' ORDER BY tenant_id, subject, at DESC) a
    ON coalesce(a.tenant_id, '') = s.tenant_id AND a.subject = s.name
WHERE s.paused AND (s.origin <> 'every' OR s.tenant_id = '' OR NOT EXISTS (
    SELECT FROM tenure.schedule e WHERE e.tenant_id = '' AND e.name = s.name AND e.paused))
ORDER BY s.tenant_id, s.name;
