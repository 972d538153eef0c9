-- G1: What is the sum of a value in each of 100 groups?
SELECT id1, sum(v1) FROM samples GROUP BY id1;

-- G2: What is the sum of a value in each of 10 000 groups?
SELECT id1, id2, sum(v1) FROM samples GROUP BY id1, id2;

-- G3: What are a sum and a mean in many small groups, by text?
SELECT count(*), sum(total), sum(mean) FROM (SELECT id3, sum(v1) AS total, avg(v3) AS mean FROM samples GROUP BY id3);

-- G4: What are the means of three values in each of 100 groups?
SELECT id4, avg(v1), avg(v2), avg(v3) FROM samples GROUP BY id4;

-- G5: What are the sums of three values in many small groups, by number?
SELECT count(*), sum(total1), sum(total2), sum(total3)
FROM (SELECT id6, sum(v1) AS total1, sum(v2) AS total2, sum(v3) AS total3 FROM samples GROUP BY id6);

-- G6: What are median and standard deviation in each of 10 000 groups?
SELECT id4, id5, median(v3), stddev(v3) FROM samples GROUP BY id4, id5;

-- G7: How far is the largest first value from the smallest second value in many small groups?
SELECT count(*), sum(distance) FROM (SELECT id3, max(v1) - min(v2) AS distance FROM samples GROUP BY id3);

-- G8: Which are the two largest values of each of many small groups?
SELECT count(*), sum(v3) FROM (
  SELECT id6, v3, row_number() OVER (PARTITION BY id6 ORDER BY v3 DESC) AS position FROM samples
) WHERE position <= 2;

-- G9: How well does a value explain another in each of 10 000 groups?
SELECT id2, id4, power(corr(v1, v2), 2) FROM samples GROUP BY id2, id4;

-- G10: What are sum and count by all six keys?
SELECT count(*), sum(total), sum(size) FROM (
  SELECT id1, id2, id3, id4, id5, id6, sum(v3) AS total, count(*) AS size FROM samples GROUP BY id1, id2, id3, id4, id5, id6
);
