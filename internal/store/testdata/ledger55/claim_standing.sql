-- The claims in flight and, of those that list another number of jobs than the caller
-- knows of, which. $1 claims, $2 how many jobs each lists, pairwise.
SELECT c.id, CASE WHEN cardinality(c.job_ids) <> known.jobs THEN c.job_ids END
FROM tenure.claim c
LEFT JOIN unnest($1::bigint[], $2::integer[]) AS known (id, jobs) ON known.id = c.id;
