-- How a job's end is told in its handler's transaction: see finish.go.
SELECT tenure.finish_in_tx($1, $2, $3, $4, $5);
