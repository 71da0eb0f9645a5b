-- How the jobs ended that a job has awaited, for its meta.
CREATE OR REPLACE FUNCTION tenure.awaited_ends(id bigint) RETURNS jsonb
    LANGUAGE sql STABLE AS $$
SELECT jsonb_build_object('tenure.awaited', jsonb_build_object(
    'done', count(*) FILTER (WHERE a.outcome = 'done'),
    'dead', count(*) FILTER (WHERE a.outcome = 'dead'),
    'cancelled', count(*) FILTER (WHERE a.outcome = 'cancelled'),
    'unknown', count(*) FILTER (WHERE a.outcome = 'unknown')))
FROM tenure.awaited a WHERE a.awaiting_id = awaited_ends.id
$$;
