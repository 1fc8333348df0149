-- Format 1 of a server's store. Checksums are CRC-32 of all that the row has.

CREATE TABLE run (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    name TEXT NOT NULL,
    learning TEXT NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    round INTEGER NOT NULL,
    server BLOB NOT NULL,
    totals BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE scaling (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    server BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE nodes (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    first_seen_ms INTEGER NOT NULL,
    last_seen_ms INTEGER NOT NULL,
    uploads INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    late INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    squared_error REAL,
    bytes_up INTEGER NOT NULL,
    bytes_down INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE history (
    round INTEGER PRIMARY KEY,
    closed_at_ms INTEGER NOT NULL,
    uploads INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    squared_error REAL,
    selected INTEGER,
    votes BLOB NOT NULL,
    late INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    bytes_up INTEGER NOT NULL,
    bytes_down INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
