-- Scalar, correlated, IN and EXISTS subqueries, and common table expressions.
create temporary view t as select * from values (1, 10, 'a'), (2, 20, 'b'), (3, null, 'c'), (null, 40, 'd'), (2, 25, null) as t(k, v, s);
create temporary view u as select * from values (1, 100), (2, 200), (2, 300), (null, 400), (9, null) as u(k, w);

select * from t where k in (select k from u);
select * from t where k not in (select k from u where k is not null);
select * from t where k not in (select k from u);
select * from t where exists (select 1 from u where u.k = t.k);
select * from t where not exists (select 1 from u where u.k = t.k);
select * from t where exists (select 1 from u where u.k = t.k and w > 150) or s = 'c';
select k, (select max(w) from u) from t;
select k, (select sum(w) from u where u.k = t.k) from t;
select k, (select count(*) from u where u.k = t.k) as c from t order by k nulls last, c;
select * from t where v > (select avg(v) from t);
select * from t where v = (select max(v) from t x where x.k = t.k);
select sum(v) from t where k in (select k from u group by k having count(*) > 1);
with big as (select k, sum(w) as w from u group by k) select t.s, big.w from t join big on t.k = big.k;
with a as (select k from t), b as (select k from a where k > 1) select count(*) from a, b where a.k = b.k;
with x as (select k, v from t) select p.k, q.v from x p join x q on p.k = q.k where p.v < q.v;
select s, v from t where (k, v) in (select k, w / 10 from u);
select case when exists (select 1 from u where w > 350) then 'yes' else 'no' end, count(*) from t;
select (select min(w) from u where k > 100) is null, count(*) from t;
select * from (select k, v from t union all select k, w from u) where v > 20;
select k, v from t order by k, (select max(w) from u);
select k, v from t order by (select max(w) from u), v nulls last, k limit 3;
