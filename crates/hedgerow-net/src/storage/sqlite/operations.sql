-- The states of several rounds, what operators decided, and the audit log.

CREATE TABLE snapshots (
    round INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    scaling INTEGER,
    server BLOB NOT NULL,
    totals BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE scalings (
    id INTEGER PRIMARY KEY,
    server BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE opening (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    generation INTEGER NOT NULL,
    before INTEGER NOT NULL,
    is_open INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE facts (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE standings (
    name TEXT PRIMARY KEY,
    standing TEXT NOT NULL,
    reason TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    details TEXT NOT NULL,
    before BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;

INSERT INTO scalings (id, server, checksum) SELECT id, server, checksum FROM scaling;

-- Checksums are made anew by the program.
INSERT INTO snapshots (round, at_ms, generation, scaling, server, totals, checksum)
SELECT round, coalesce((SELECT closed_at_ms FROM history ORDER BY round DESC LIMIT 1), 0), 0,
       (SELECT id FROM scaling), server, totals, checksum
FROM state;

DROP TABLE state;
DROP TABLE scaling;
