-- Writes what runs on a node say of themselves, but for those whose claim was lost: their jobs have
-- another turn. No such job gets another turn before this has committed. $1 reports, as
-- tenure.write_reports takes them, $2 the node.
WITH standing AS MATERIALIZED (
    SELECT said.report
    FROM jsonb_array_elements($1::jsonb) AS said (report)
    JOIN tenure.job j ON j.id = (said.report ->> 'job_id')::bigint AND j.turn = (said.report ->> 'turn')::integer
    ORDER BY j.id
    FOR NO KEY UPDATE OF j)
SELECT tenure.write_reports(jsonb_agg(report), $2::text) FROM standing HAVING count(*) > 0;
