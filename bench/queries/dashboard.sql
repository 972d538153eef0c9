-- D1: Which orders does a customer have?
SELECT o_orderkey, o_orderdate, o_totalprice FROM orders WHERE o_custkey = 370 ORDER BY o_orderdate, o_orderkey;

-- D2: Which lines does an order have?
SELECT l_linenumber, l_partkey, l_quantity, l_extendedprice FROM lineitem WHERE l_orderkey = 32 ORDER BY l_linenumber;

-- D3: How many orders are in each state?
SELECT o_orderstatus, count(*) FROM orders GROUP BY o_orderstatus ORDER BY o_orderstatus;

-- D4: How does revenue develop by month?
SELECT date_trunc('MONTH', o_orderdate) AS month, sum(o_totalprice) FROM orders GROUP BY date_trunc('MONTH', o_orderdate) ORDER BY month;

-- D5: Which customers have the largest balances?
SELECT c_name, c_acctbal FROM customer ORDER BY c_acctbal DESC, c_custkey LIMIT 10;

-- D6: How many customers does each nation have?
SELECT n_name, count(*) AS customers FROM customer JOIN nation ON c_nationkey = n_nationkey GROUP BY n_name ORDER BY customers DESC, n_name;

-- D7: Which parts are ordered most?
SELECT l_partkey, sum(l_quantity) AS quantity FROM lineitem GROUP BY l_partkey ORDER BY quantity DESC, l_partkey LIMIT 10;

-- D8: What is the mean discount by ship mode?
SELECT l_shipmode, avg(l_discount), count(*) FROM lineitem GROUP BY l_shipmode ORDER BY l_shipmode;

-- D9: How many lines were late in a year?
SELECT count(*) FROM lineitem WHERE l_receiptdate > l_commitdate AND year(l_receiptdate) = 1996;

-- D10: How many different customers ordered in each year?
SELECT year(o_orderdate) AS year, count(DISTINCT o_custkey) FROM orders GROUP BY year(o_orderdate) ORDER BY year;

-- D11: Which customers have no orders?
SELECT count(*) FROM customer LEFT ANTI JOIN orders ON c_custkey = o_custkey;

-- D12: What is each region's share of the suppliers?
SELECT r_name, count(*) AS suppliers FROM supplier JOIN nation ON s_nationkey = n_nationkey
JOIN region ON n_regionkey = r_regionkey GROUP BY r_name ORDER BY r_name;

-- D13: What is the latest order of each customer of a segment?
SELECT c_custkey, max(o_orderdate) FROM customer JOIN orders ON c_custkey = o_custkey
WHERE c_mktsegment = 'BUILDING' GROUP BY c_custkey ORDER BY c_custkey LIMIT 20;

-- D14: What are the smallest, mean and largest prices by brand?
SELECT p_brand, min(p_retailprice), avg(p_retailprice), max(p_retailprice) FROM part GROUP BY p_brand ORDER BY p_brand;

-- D15: What are the three largest orders of each priority?
SELECT o_orderpriority, o_orderkey, o_totalprice FROM (
  SELECT *, row_number() OVER (PARTITION BY o_orderpriority ORDER BY o_totalprice DESC, o_orderkey) AS position FROM orders
) WHERE position <= 3 ORDER BY o_orderpriority, position;

-- D16: How do orders accumulate over a year?
SELECT month, orders, sum(orders) OVER (ORDER BY month) FROM (
  SELECT month(o_orderdate) AS month, count(*) AS orders FROM orders WHERE year(o_orderdate) = 1997 GROUP BY month(o_orderdate)
) ORDER BY month;
