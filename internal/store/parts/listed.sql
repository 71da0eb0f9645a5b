-- What lists show of a job: its columns, and how it stands.
{{job}}, state, at, node, error, handled, began, resume_at, external, listed_at
