-- What a tenant's transaction begins with.
SELECT tenure.enter_tenant($1, $2, $3);
