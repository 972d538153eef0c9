-- Unions, intersections, differences, orders, limits and offsets.
create temporary view a as select * from values (1, 'x'), (1, 'x'), (2, null), (null, 'y'), (3, 'z') as a(k, s);
create temporary view b as select * from values (1, 'x'), (2, null), (2, null), (4, 'w'), (null, null) as b(k, s);

select * from a union select * from b;
select * from a union all select * from b;
select * from a intersect select * from b;
select * from a intersect all select * from b;
select * from a except select * from b;
select * from a except all select * from b;
select * from a minus select * from b where k = 1;
(select k from a) union all (select k + 10 from b) order by k nulls first limit 3;
select k, count(*) from (select * from a union all select * from b) group by k;
select * from a order by k desc nulls first, s;
select * from a order by s, k limit 2;
select distinct s from a order by s desc nulls last;
select k from a order by k offset 2;
select k from a order by k limit 2 offset 1;
select s from a order by length(s), k;
select k, s from a order by -k nulls last, s;
select k, count(*) as c from a group by k order by c desc, k limit 2;
select * from a where k between 1 and 2 and s is not null;
select * from a where k in (1, null, 3);
select * from a where not (k = 1 or s = 'y');
select * from a where s like '%x%' or s rlike '^[yz]$';
