"""The scripts that write tables, pictures and measured files of the documents; the site leaves them
out."""
