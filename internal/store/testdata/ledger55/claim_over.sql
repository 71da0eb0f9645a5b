-- Which runs have ended, though their claim may go on and list them: their jobs are gone, or have
-- another turn. $1 jobs, $2 the turns that they were claimed at, pairwise. They are looked up one by
-- one, whatever the plan.
SELECT run.n::integer - 1
FROM unnest($1::bigint[], $2::integer[]) WITH ORDINALITY AS run (id, turn, n)
LEFT JOIN LATERAL (SELECT j.turn FROM tenure.job j WHERE j.id = run.id OFFSET 0) job ON true
WHERE job.turn IS DISTINCT FROM run.turn;
