-- W1: How many hits are there?
SELECT count(*) FROM hits;

-- W2: How many hits are from campaigns?
SELECT count(*) FROM hits WHERE campaign_id <> 0;

-- W3: What are totals and means of small numbers?
SELECT sum(campaign_id), count(*), avg(screen_width) FROM hits;

-- W4: What is the mean of 64-bit ids?
SELECT avg(user_id) FROM hits;

-- W5: How many users are there?
SELECT count(DISTINCT user_id) FROM hits;

-- W6: How many different texts were searched?
SELECT count(DISTINCT search_phrase) FROM hits;

-- W7: Which days are covered?
SELECT min(event_date), max(event_date) FROM hits;

-- W8: How many hits does each campaign have?
SELECT campaign_id, count(*) AS hits FROM hits WHERE campaign_id <> 0 GROUP BY campaign_id ORDER BY hits DESC, campaign_id;

-- W9: Which regions have the most users?
SELECT region_id, count(DISTINCT user_id) AS users FROM hits GROUP BY region_id ORDER BY users DESC, region_id LIMIT 10;

-- W10: What are the metrics of the largest regions?
SELECT region_id, sum(campaign_id), count(*) AS hits, avg(screen_width), count(DISTINCT user_id)
FROM hits GROUP BY region_id ORDER BY hits DESC, region_id LIMIT 10;

-- W11: Which phones do most users have?
SELECT phone_model, count(DISTINCT user_id) AS users FROM hits WHERE phone_model <> ''
GROUP BY phone_model ORDER BY users DESC, phone_model LIMIT 10;

-- W12: Which phones of which vendor do most users have?
SELECT vendor_id, phone_model, count(DISTINCT user_id) AS users FROM hits WHERE phone_model <> ''
GROUP BY vendor_id, phone_model ORDER BY users DESC, vendor_id, phone_model LIMIT 10;

-- W13: Which texts are searched most often?
SELECT search_phrase, count(*) AS hits FROM hits WHERE search_phrase <> ''
GROUP BY search_phrase ORDER BY hits DESC, search_phrase LIMIT 10;

-- W14: Which texts do most users search?
SELECT search_phrase, count(DISTINCT user_id) AS users FROM hits WHERE search_phrase <> ''
GROUP BY search_phrase ORDER BY users DESC, search_phrase LIMIT 10;

-- W15: Which texts are searched most often, by engine?
SELECT engine_id, search_phrase, count(*) AS hits FROM hits WHERE search_phrase <> ''
GROUP BY engine_id, search_phrase ORDER BY hits DESC, engine_id, search_phrase LIMIT 10;

-- W16: Who are the most active users?
SELECT user_id, count(*) AS hits FROM hits GROUP BY user_id ORDER BY hits DESC, user_id LIMIT 10;

-- W17: What do the most active users search?
SELECT user_id, search_phrase, count(*) AS hits FROM hits
GROUP BY user_id, search_phrase ORDER BY hits DESC, user_id, search_phrase LIMIT 10;

-- W18: What do the first users by id search?
SELECT user_id, search_phrase, count(*) FROM hits
GROUP BY user_id, search_phrase ORDER BY user_id, search_phrase LIMIT 10;

-- W19: In which minute of an hour are users most active?
SELECT user_id, minute(event_time) AS minute, search_phrase, count(*) AS hits FROM hits
GROUP BY user_id, minute(event_time), search_phrase ORDER BY hits DESC, user_id, minute, search_phrase LIMIT 10;

-- W20: What are the hits of a single user?
SELECT hit_id, event_time, user_id FROM hits WHERE user_id = 8326111556584712155;

-- W21: How many URLs contain a word?
SELECT count(*) FROM hits WHERE url LIKE '%maps%';

-- W22: Which searches lead to URLs with a word?
SELECT search_phrase, min(url), count(*) AS hits FROM hits WHERE url LIKE '%maps%' AND search_phrase <> ''
GROUP BY search_phrase ORDER BY hits DESC, search_phrase LIMIT 10;

-- W23: Which searches lead to titles with a word, on other hosts?
SELECT search_phrase, min(url), min(title), count(*) AS hits, count(DISTINCT user_id) FROM hits
WHERE title LIKE '%Maps%' AND url NOT LIKE '%.maps.%' AND search_phrase <> ''
GROUP BY search_phrase ORDER BY hits DESC, search_phrase LIMIT 10;

-- W24: What are all columns of the first hits with a word in their URL?
SELECT * FROM hits WHERE url LIKE '%maps%' ORDER BY event_time, hit_id LIMIT 10;

-- W25: What was searched first?
SELECT search_phrase FROM hits WHERE search_phrase <> '' ORDER BY event_time, hit_id LIMIT 10;

-- W26: Which searched texts are first in the alphabet?
SELECT search_phrase FROM hits WHERE search_phrase <> '' ORDER BY search_phrase LIMIT 10;

-- W27: What was searched first, by the clock of the client?
SELECT search_phrase FROM hits WHERE search_phrase <> '' ORDER BY client_time, search_phrase LIMIT 10;

-- W28: Which sites have the longest URLs?
SELECT site_id, avg(length(url)) AS characters, count(*) AS hits FROM hits WHERE url <> ''
GROUP BY site_id HAVING count(*) > 1000 ORDER BY characters DESC, site_id LIMIT 25;

-- W29: Which hosts have the longest referrers?
SELECT regexp_replace(referrer, '^https?://(www[.])?([^/]+)/.*', '$2') AS host, avg(length(referrer)) AS characters,
  count(*) AS hits, min(referrer)
FROM hits WHERE referrer <> '' GROUP BY regexp_replace(referrer, '^https?://(www[.])?([^/]+)/.*', '$2')
HAVING count(*) > 1000 ORDER BY characters DESC, host LIMIT 25;

-- W30: What are ninety sums of a column?
SELECT
  sum(window_width + 0), sum(window_width + 1), sum(window_width + 2), sum(window_width + 3), sum(window_width + 4), sum(window_width + 5),
  sum(window_width + 6), sum(window_width + 7), sum(window_width + 8), sum(window_width + 9), sum(window_width + 10), sum(window_width + 11),
  sum(window_width + 12), sum(window_width + 13), sum(window_width + 14), sum(window_width + 15), sum(window_width + 16), sum(window_width + 17),
  sum(window_width + 18), sum(window_width + 19), sum(window_width + 20), sum(window_width + 21), sum(window_width + 22), sum(window_width + 23),
  sum(window_width + 24), sum(window_width + 25), sum(window_width + 26), sum(window_width + 27), sum(window_width + 28), sum(window_width + 29),
  sum(window_width + 30), sum(window_width + 31), sum(window_width + 32), sum(window_width + 33), sum(window_width + 34), sum(window_width + 35),
  sum(window_width + 36), sum(window_width + 37), sum(window_width + 38), sum(window_width + 39), sum(window_width + 40), sum(window_width + 41),
  sum(window_width + 42), sum(window_width + 43), sum(window_width + 44), sum(window_width + 45), sum(window_width + 46), sum(window_width + 47),
  sum(window_width + 48), sum(window_width + 49), sum(window_width + 50), sum(window_width + 51), sum(window_width + 52), sum(window_width + 53),
  sum(window_width + 54), sum(window_width + 55), sum(window_width + 56), sum(window_width + 57), sum(window_width + 58), sum(window_width + 59),
  sum(window_width + 60), sum(window_width + 61), sum(window_width + 62), sum(window_width + 63), sum(window_width + 64), sum(window_width + 65),
  sum(window_width + 66), sum(window_width + 67), sum(window_width + 68), sum(window_width + 69), sum(window_width + 70), sum(window_width + 71),
  sum(window_width + 72), sum(window_width + 73), sum(window_width + 74), sum(window_width + 75), sum(window_width + 76), sum(window_width + 77),
  sum(window_width + 78), sum(window_width + 79), sum(window_width + 80), sum(window_width + 81), sum(window_width + 82), sum(window_width + 83),
  sum(window_width + 84), sum(window_width + 85), sum(window_width + 86), sum(window_width + 87), sum(window_width + 88), sum(window_width + 89)
FROM hits;

-- W31: Which clients search most, by engine?
SELECT engine_id, ip, count(*) AS hits, sum(is_reload), avg(screen_width) FROM hits WHERE search_phrase <> ''
GROUP BY engine_id, ip ORDER BY hits DESC, engine_id, ip LIMIT 10;

-- W32: Which searches occur more than once?
SELECT hit_id, ip, count(*) AS hits, sum(is_reload), avg(screen_width) FROM hits WHERE search_phrase <> ''
GROUP BY hit_id, ip ORDER BY hits DESC, hit_id, ip LIMIT 10;

-- W33: Which hits occur more than once?
SELECT hit_id, ip, count(*) AS hits, sum(is_reload), avg(screen_width) FROM hits
GROUP BY hit_id, ip ORDER BY hits DESC, hit_id, ip LIMIT 10;

-- W34: Which URLs have the most hits?
SELECT url, count(*) AS hits FROM hits GROUP BY url ORDER BY hits DESC, url LIMIT 10;

-- W35: Which URLs have the most hits, beside a constant?
SELECT 1 AS version, url, count(*) AS hits FROM hits GROUP BY 1, url ORDER BY hits DESC, url LIMIT 10;

-- W36: Which addresses and their neighbours have the most hits?
SELECT ip, ip - 1 AS below, ip - 2 AS second_below, ip - 3 AS third_below, count(*) AS hits FROM hits
GROUP BY ip, ip - 1, ip - 2, ip - 3 ORDER BY hits DESC, ip LIMIT 10;

-- W37: Which pages of a site are read most in three weeks?
SELECT url, count(*) AS views FROM hits
WHERE site_id = 0 AND event_date BETWEEN DATE '2026-03-05' AND DATE '2026-03-25' AND is_reload = 0 AND is_internal = 0 AND url <> ''
GROUP BY url ORDER BY views DESC, url LIMIT 10;

-- W38: Which titles of a site are read most in three weeks?
SELECT title, count(*) AS views FROM hits
WHERE site_id = 0 AND event_date BETWEEN DATE '2026-03-05' AND DATE '2026-03-25' AND is_reload = 0 AND is_internal = 0 AND title <> ''
GROUP BY title ORDER BY views DESC, title LIMIT 10;

-- W39: Which links of a site follow the thousand most frequent?
SELECT url, count(*) AS views FROM hits
WHERE site_id = 0 AND event_date BETWEEN DATE '2026-03-05' AND DATE '2026-03-25' AND is_reload = 0 AND is_link <> 0 AND is_download = 0
GROUP BY url ORDER BY views DESC, url LIMIT 10 OFFSET 1000;

-- W40: From where to where do readers of a site go?
SELECT source_id, engine_id, campaign_id, CASE WHEN engine_id = 0 AND campaign_id = 0 THEN referrer ELSE '' END AS origin,
  url AS target, count(*) AS views
FROM hits WHERE site_id = 0 AND event_date BETWEEN DATE '2026-03-05' AND DATE '2026-03-25' AND is_reload = 0
GROUP BY source_id, engine_id, campaign_id, CASE WHEN engine_id = 0 AND campaign_id = 0 THEN referrer ELSE '' END, url
ORDER BY views DESC, source_id, engine_id, campaign_id, origin, target LIMIT 10 OFFSET 1000;

-- W41: Which pages of a site have visits from a referrer, by day?
SELECT url_hash, event_date, count(*) AS views FROM hits
WHERE site_id = 0 AND event_date BETWEEN DATE '2026-03-05' AND DATE '2026-03-25' AND is_reload = 0 AND source_id IN (-1, 6) AND referrer_hash = 3119036373970289394
GROUP BY url_hash, event_date ORDER BY views DESC, url_hash, event_date LIMIT 10 OFFSET 100;

-- W42: Which window sizes do readers of a page have?
SELECT window_width, window_height, count(*) AS views FROM hits
WHERE site_id = 0 AND event_date BETWEEN DATE '2026-03-05' AND DATE '2026-03-25' AND is_reload = 0 AND is_internal = 0 AND url_hash = 3119036373970289394
GROUP BY window_width, window_height ORDER BY views DESC, window_width, window_height LIMIT 10 OFFSET 100;

-- W43: How many hits does a site have in each minute of two days?
SELECT date_trunc('minute', event_time) AS minute, count(*) AS views FROM hits
WHERE site_id = 0 AND event_date BETWEEN DATE '2026-03-14' AND DATE '2026-03-15' AND is_reload = 0 AND is_internal = 0
GROUP BY date_trunc('minute', event_time) ORDER BY minute LIMIT 10 OFFSET 1000;
