-- How the end of several jobs is told in their handler's transaction: see finish.go.
SELECT tenure.finish_batch_in_tx($1, $2, $3, $4, $5);
