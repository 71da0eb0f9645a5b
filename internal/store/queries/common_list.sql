-- What operators have set for every tenant of the pool, in words. What the configuration sets each pool's holder writes by itself.
SELECT 'schedule ' || name FROM tenure.schedule WHERE tenant_id = '' AND origin <> 'config'
UNION ALL
SELECT 'limit of ' || CASE WHEN scope = 'tenant' THEN 'all jobs' WHEN name = '' THEN 'each ' || scope ELSE scope || ' ' || name END FROM tenure.job_limit WHERE tenant_id = ''
ORDER BY 1;
