-- Whether a job stands here while its tenant is between two pools, and which is the
-- other one. $1 id.
SELECT t.tenant_id, coalesce(t.other_pool, '') AS other_pool
FROM (SELECT tenant_id FROM tenure.job WHERE id = $1
      UNION ALL SELECT tenant_id FROM tenure.timer_job WHERE id = $1
      UNION ALL SELECT tenant_id FROM tenure.external_job WHERE id = $1
      UNION ALL SELECT tenant_id FROM tenure.suspended_job WHERE id = $1
      UNION ALL SELECT tenant_id FROM tenure.dead_letter_job WHERE id = $1) j
JOIN tenure.tenant t USING (tenant_id)
WHERE t.state IN ('moved', 'arriving');
