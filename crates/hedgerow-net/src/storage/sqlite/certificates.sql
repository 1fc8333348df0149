-- The serial number of the certificate that each node joined with last.

ALTER TABLE nodes ADD COLUMN certificate BLOB NOT NULL DEFAULT x'';
