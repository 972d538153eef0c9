-- Aggregates with and without keys, over nulls, empty inputs and extremes.
create temporary view facts as select * from values
  (1, 'a', 10, 1.50, 2.5D, date'2024-01-31', true),
  (1, 'b', null, 2.25, -0.0D, date'2024-02-29', false),
  (2, 'a', -7, null, double('NaN'), null, null),
  (2, null, 2147483647, 0.05, 1e10D, date'1582-10-15', true),
  (null, 'a', 0, -99.99, null, date'1970-01-01', false),
  (null, null, null, null, null, null, null),
  (3, 'é', 10, 1.50, 2.5D, date'2024-01-31', true)
  as facts(k, s, i, d, x, day, b);

select k, count(*), count(i), count(distinct s), sum(i), min(i), max(i) from facts group by k;
select count(*), count(k), sum(d), avg(d), min(s), max(day) from facts;
select count(*), sum(i), max(s) from facts where k > 100;
select k, sum(i) from facts where k > 100 group by k;
select s, avg(i), avg(d), avg(x) from facts group by s;
select k, min(x), max(x), count(distinct x) from facts group by k;
select b, bool_and(b), bool_or(b), every(k > 1), some(k > 1) from facts group by b;
select k, count_if(i > 0), sum(if(b, 1, 0)), count(*) filter (where s = 'a') from facts group by k;
select k + 1, sum(d * 2), sum(cast(i as bigint) * 3) from facts group by k + 1;
select year(day), month(day), count(*), sum(i % 10) from facts group by year(day), month(day);
select k, max(struct(i, s)).s from facts group by k;
select k, stddev(i), stddev_pop(i), variance(d), var_pop(x) from facts where x = x or x is null group by k;
select corr(i, k), covar_pop(i, k), covar_samp(i, k), regr_count(i, k) from facts where i < 100;
select k, any_value(k), first(k), last(k) from facts group by k;
select k, min_by(s, i), max_by(s, i) from facts where i is not null and k is not null group by k;
select k, approx_count_distinct(s) from facts group by k;
select percentile(i, 0.5), median(i), percentile(d, 0.25) from facts;
select k, bit_and(i), bit_or(i), bit_xor(i) from facts group by k;
select sum(distinct i), count(distinct i, s), avg(distinct k) from facts;
select k, s, sum(i) from facts group by k, s having sum(i) > 0 or s is null;
select k, sum(i) as total from facts group by k having count(*) > 1 order by total desc nulls last;
select upper(s) as u, count(*) from facts group by upper(s) order by u nulls first;
select sum(i) + count(*) * 2, max(i) - min(i) from facts where i < 100;
select x, count(*) from facts group by x;
select -x, count(*) from facts group by -x;
select distinct k, s from facts;
select distinct cast(d as string) from facts;
select sum(sum_i) from (select k, sum(i) as sum_i from facts group by k);
select try_sum(i), try_avg(i) from facts;
select sum(i * 2) from facts;
select cast(sum(d) as int), round(avg(x), 2) from facts where x < 100;
select k, sum(cast(d as decimal(15, 4)) * cast(d as decimal(15, 4)) * cast(0.0049 as decimal(15, 4))) from facts group by k;
select sum(cast(d as decimal(18, 10)) * cast(d as decimal(18, 10))), avg(d * d * d) from facts;
select k, sum(cast(i as decimal(18, 2)) * cast(i as decimal(18, 2)) * d) from facts group by k;
select cast(i as decimal(18, 2)) * cast(i as decimal(18, 2)) as p, count(*) from facts group by 1;
select count() from facts;
select count(distinct k) filter (where false), sum(i) filter (where false) from facts;
select 1 from facts having true;
