-- Which text of each function is in force: its file's name and digest.
SELECT name || ' ' || digest FROM tenure.function_text;
