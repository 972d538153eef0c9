-- J1: What do rows have in common with a small table?
SELECT count(*), sum(v1), sum(v2) FROM facts JOIN small ON facts.id1 = small.id1;

-- J2: What do rows have in common with a medium table?
SELECT count(*), sum(v1), sum(v2) FROM facts JOIN medium ON facts.id2 = medium.id2;

-- J3: What do all rows have in a medium table, if they are in it?
SELECT count(*), sum(v1), sum(v2), count(v2) FROM facts LEFT JOIN medium ON facts.id2 = medium.id2;

-- J4: What do rows have in common with a medium table, by text?
SELECT count(*), sum(v1), sum(v2) FROM facts JOIN medium ON facts.id5 = medium.id5;

-- J5: What do rows have in common with a table of the same size?
SELECT count(*), sum(v1), sum(v2) FROM facts JOIN big ON facts.id3 = big.id3;
