-- Rollup, cube, grouping sets and their functions; pivots and unpivots.
create temporary view sales as select * from values
  ('north', 2023, 'apple', 10), ('north', 2023, 'pear', 5), ('north', 2024, 'apple', null),
  ('south', 2023, 'apple', 7), ('south', 2024, null, 3), (null, 2024, 'pear', 1), ('south', null, 'pear', -4)
  as sales(region, y, fruit, n);

select region, y, sum(n) from sales group by rollup (region, y);
select region, y, sum(n), count(*) from sales group by cube (region, y);
select region, fruit, sum(n) from sales group by grouping sets ((region), (fruit), ());
select region, y, grouping(region), grouping(y), grouping_id(), sum(n) from sales group by cube (region, y);
select region, y, fruit, max(n) from sales group by region, rollup (y, fruit);
select coalesce(region, 'all'), sum(n) from sales group by rollup (region) having sum(n) > 0;
select region, count(distinct fruit), sum(n) from sales group by rollup (region);
select y + 1, sum(n) from sales group by rollup (y + 1) order by 1 nulls last;
select region, sum(n) filter (where fruit = 'apple') from sales group by cube (region);
select * from (select region, y, n from sales) pivot (sum(n) for y in (2023, 2024));
select * from (select region, fruit, n from sales) pivot (max(n) as m, count(n) as c for fruit in ('apple', 'pear'));
select region, kind, value from (select region, y, n from sales) unpivot (value for kind in (y, n));
