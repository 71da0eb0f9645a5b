-- Jobs that cannot be read among the $1 oldest that wait, the $1 oldest timers, and the $1 oldest of external workers:
-- they stay while others go.
SELECT j.id, j.tenant_id, d.damage
FROM ((SELECT id, tenant_id, payload, meta FROM tenure.job ORDER BY id LIMIT $1)
      UNION ALL
      (SELECT id, tenant_id, payload, meta FROM tenure.timer_job ORDER BY id LIMIT $1)
      UNION ALL
      (SELECT id, tenant_id, payload, meta FROM tenure.external_job ORDER BY id LIMIT $1)) j
CROSS JOIN LATERAL (SELECT coalesce(tenure.damage(j.payload), tenure.damage(j.meta)) AS damage OFFSET 0) d
WHERE d.damage IS NOT NULL
ORDER BY j.id;
