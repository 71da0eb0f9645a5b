-- The unfinished job of external workers with id $1, as external_list.sql has it.
SELECT {{external_shown}}
FROM tenure.external_job j
WHERE j.id = $1;
