-- Joins of all types: null keys, duplicates, empty sides, conditions, several keys.
create temporary view l as select * from values (1, 'a', 1.5), (1, 'b', null), (2, 'c', 2.5), (null, 'd', 0.5), (4, null, -1.5) as l(k, s, d);
create temporary view r as select * from values (1, 'x', 10), (1, 'y', 20), (2, null, 30), (null, 'z', 40), (5, 'w', 50) as r(k, t, n);
create temporary view nobody as select * from values (1, 'q') as nobody(k, q) where k > 1;

select l.k, s, t, n from l join r on l.k = r.k;
select l.k, s, t from l left join r on l.k = r.k;
select r.k, s, t from l right join r on l.k = r.k;
select l.k, r.k, s, t from l full join r on l.k = r.k;
select * from l left semi join r on l.k = r.k;
select * from l left anti join r on l.k = r.k;
select l.s, r.t from l cross join r where n > 20;
select l.s, r.t from l join r on l.k <=> r.k;
select l.s, r.t from l left join r on l.k = r.k and r.n > 10;
select l.s, r.t from l left join r on l.k = r.k where r.n is null;
select l.s, q from l left join nobody on l.k = nobody.k;
select l.s, q from l join nobody on l.k = nobody.k;
select l.s, q from l full join nobody on l.k = nobody.k;
select count(*) from l left anti join nobody on l.k = nobody.k;
select l.k, sum(n), count(t) from l join r on l.k = r.k group by l.k;
select a.s, b.s from l a join l b on a.k = b.k and a.s < b.s;
select l.s, r.t from l join r on l.k = r.k and l.d * 10 < r.n;
select k, s, t from l join r using (k);
select * from l natural join r;
select a.s, b.t, c.q from l a left join r b on a.k = b.k left join nobody c on b.k = c.k;
select l.s, x.total from l left join (select k, sum(n) as total from r group by k) x on l.k = x.k;
select l.s, upper(r.t) from l join r on l.k + 1 = r.k + 1;
select l.s from l join r on l.k = r.n / 10;
