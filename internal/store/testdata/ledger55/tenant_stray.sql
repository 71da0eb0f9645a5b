-- Whether a tenant has unfinished jobs or schedules in this pool. $1 tenant.
SELECT EXISTS (SELECT FROM tenure.job WHERE tenant_id = $1)
    OR EXISTS (SELECT FROM tenure.timer_job WHERE tenant_id = $1)
    OR EXISTS (SELECT FROM tenure.external_job WHERE tenant_id = $1)
    OR EXISTS (SELECT FROM tenure.suspended_job WHERE tenant_id = $1)
    OR EXISTS (SELECT FROM tenure.dead_letter_job WHERE tenant_id = $1)
    OR EXISTS (SELECT FROM tenure.schedule WHERE tenant_id = $1);
