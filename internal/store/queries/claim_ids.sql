-- The numbers of the claims in flight.
SELECT id FROM tenure.claim;
