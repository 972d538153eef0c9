-- Window functions: ranks, offsets, frames, aggregates over partitions and orders with ties and nulls.
create temporary view w as select * from values
  (1, 'a', 3, 1.5), (1, 'b', 3, 2.5), (1, 'c', null, 0.5), (2, 'd', 1, null), (2, 'e', 2, 1.5), (null, 'f', 5, 1.5), (null, 'g', 5, 9.5)
  as w(k, s, o, d);

select s, row_number() over (partition by k order by o, s) from w;
select s, rank() over (partition by k order by o), dense_rank() over (partition by k order by o) from w;
select s, percent_rank() over (order by o), cume_dist() over (order by o) from w;
select s, ntile(3) over (order by s) from w;
select s, lag(d) over (partition by k order by s), lead(d, 2, -1.0) over (partition by k order by s) from w;
select s, sum(o) over (partition by k), count(*) over (partition by k order by s) from w;
select s, sum(o) over (partition by k order by o) from w;
select s, sum(o) over (order by s rows between 1 preceding and 1 following) from w;
select s, min(o) over (order by s rows between unbounded preceding and current row), max(o) over (order by s rows between current row and unbounded following) from w;
select s, sum(o) over (order by o range between 1 preceding and current row) from w;
select s, first_value(s) over (partition by k order by s), last_value(s) over (partition by k order by s) from w;
select s, nth_value(s, 2) over (partition by k order by s) from w;
select s, avg(d) over (partition by k) from w;
select k, sum(o), rank() over (order by sum(o) desc nulls last) from w group by k;
select * from (select s, k, row_number() over (partition by k order by s desc) as n from w) where n = 1;
select s, count(distinct k) over () from w;
select s, o - lag(o, 1, 0) over (order by s) from w;
select k, s, sum(count(*)) over (partition by k) from w group by k, s;
select s, first_value(o) ignore nulls over (partition by k order by s desc) from w;
select * from (select k, d, row_number() over (partition by k order by d) as n from w) where n = 1;
select * from (select k, d, row_number() over (partition by k order by d nulls last) as n from w) where n <= 1;
select * from (select k, d, row_number() over (partition by k order by d desc nulls first, s) as n from w) where n < 3;
select * from (select k, x, row_number() over (partition by k order by x desc) as n from (select k, case when s in ('a', 'd') then double('NaN') else cast(d as double) end as x from w)) where n <= 2;
select * from (select k, x, row_number() over (order by x nulls last) as n from (select k, case when s = 'a' then double('NaN') else cast(d + k * 10 as double) end as x from w)) where n <= 4;
select * from (select s, row_number() over (order by s) as n from w) where 3 >= n;
select * from (select s, row_number() over (order by s) as n from w) where n * 1000000000 > 0;
select s, n + 2147483640 from (select s, row_number() over (order by s) as n from w) where n <= 5;
