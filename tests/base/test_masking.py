"""Secrets are masked, and other text stays unchanged."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.base.masking import MASK, mask, mask_sql, mask_value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jdbc:postgresql://me:hunter2@db:5432/shop", f"jdbc:postgresql://me:{MASK}@db:5432/shop"),
        (
            "jdbc:postgresql://db/shop?user=me&password=hunter2&ssl=true",
            f"jdbc:postgresql://db/shop?user=me&password={MASK}&ssl=true",
        ),
        ("sasl.password = 'hunter2', acks=1", f"sasl.password = '{MASK}', acks=1"),
        ('{"secret": "hunter2", "n": 1}', f'{{"secret": "{MASK}", "n": 1}}'),
        ("fs.s3a.access_key=AKIA123;x=1", f"fs.s3a.access_key={MASK};x=1"),
        ('password="hunter2 two", acks=1', f'password="{MASK}", acks=1'),
        ("password: 'two hunter2' user: me", f"password: '{MASK}' user: me"),
        ('{"password": "hunter2 \\"two", "n": 1}', f'{{"password": "{MASK}", "n": 1}}'),
        ('password="hunter2', f'password="{MASK}'),
        ("http://db/x;jsessionid=hunter2?n=1", f"http://db/x;jsessionid={MASK}"),
        ("sessionid=hunter2; path=/", f"sessionid={MASK}; path=/"),
        ("jdbc:postgresql://me:hunter2@h1:5432,h2/shop", f"jdbc:postgresql://me:{MASK}@h1:5432,h2/shop"),
        ("jdbc:mysql://me:hunter2@h1,you:hunter2@h2/shop", f"jdbc:mysql://me:{MASK}@h2/shop"),
        ("redis://:hunter2@cache:6379/0", f"redis://:{MASK}@cache:6379/0"),
        ("amqps://me:hunter2/+x@queue/shop", f"amqps://me:{MASK}@queue/shop"),
        ("s3a://AKIA123:hunter2/ab+c@bucket/path", f"s3a://AKIA123:{MASK}@bucket/path"),
        ("https://hunter2_0123456789abcdefghij@github.com/a/b", f"https://{MASK}@github.com/a/b"),
        ("jdbc:oracle:thin:scott/hunter2@//db:1521/shop", f"jdbc:oracle:thin:scott/{MASK}@//db:1521/shop"),
        ('jdbc:oracle:oci:"scott"/"hunter2"@shop', f'jdbc:oracle:oci:"scott"/{MASK}@shop'),
        ("jdbc:mysql://db?password=hunter2;hunter2&ssl=true", f"jdbc:mysql://db?password={MASK}&ssl=true"),
        ("jdbc:mysql://db?password=hunter2;;hunter2&&hunter2&ssl=true", f"jdbc:mysql://db?password={MASK}&ssl=true"),
        ("jdbc:sqlserver://db;password=hunter2;trust store=a", f"jdbc:sqlserver://db;password={MASK};trust store=a"),
        ("jdbc:sqlserver://db;password=hunter2;encrypt=true;x", f"jdbc:sqlserver://db;password={MASK};encrypt=true;x"),
        ("jdbc:sqlserver://db;password={hunter2;b};ssl=true", f"jdbc:sqlserver://db;password={MASK};ssl=true"),
        ("jdbc:sqlserver://db;password={hunt}}er2;hunter2}", f"jdbc:sqlserver://db;password={MASK}"),
        ("https://a.blob.core/c?sv=1&sig=hunter2%3D&se=2", f"https://a.blob.core/c?sv=1&sig={MASK}&se=2"),
        ("SharedAccessSignature=sv=1&sig=hunter2", f"SharedAccessSignature={MASK}&sig={MASK}"),
        ("https://b/k?X-Amz-Signature=hunter2&x=1", f"https://b/k?X-Amz-Signature={MASK}&x=1"),
        ("https://b/k?X-Goog-Signature=hunter2&Key-Pair-Id=1", f"https://b/k?X-Goog-Signature={MASK}&Key-Pair-Id=1"),
        ("user=me pass=hunter2 db_pass=hunter2 dbpass=hunter2", f"user=me pass={MASK} db_pass={MASK} dbpass={MASK}"),
        ("redis.pw: hunter2, n: 1", f"redis.pw: {MASK}, n: 1"),
        ("PrivateKey=hunter2;encryption-key=hunter2", f"PrivateKey={MASK};encryption-key={MASK}"),
        ("Cookie: a=hunter2; b=hunter2\nHost: db", f"Cookie: {MASK}\nHost: db"),
        ("Set-Cookie: a=hunter2; Path=/", f"Set-Cookie: {MASK}"),
        ("{'Cookie': 'a=1; b=hunter2', 'n': 1}", f"{{'Cookie': '{MASK}', 'n': 1}}"),
        ('Authorization: Digest user="me", response="hunter2"', f"Authorization: {MASK}"),
        ("Authorization: AWS4-HMAC-SHA256 Signature=hunter2\nHost: db", f"Authorization: {MASK}\nHost: db"),
        ("url%3Dx%26password%3Dhunter2&n=1", f"url%3Dx%26password%3D{MASK}&n=1"),
        ('{\\"password\\": \\"hunter2\\", \\"n\\": 1}', f'{{\\"password\\": \\"{MASK}\\", \\"n\\": 1}}'),
        (
            "Project [static_invoke(ExpressionImplUtils.aesEncrypt(cast(c_name#1 as binary), 0x68756E74657232, GCM)) AS x#2]",
            f"Project [static_invoke(ExpressionImplUtils.aesEncrypt(cast(c_name#1 as binary), {MASK}, GCM)) AS x#2]",
        ),
        (
            "aes_encrypt(cast(c_name#1 as binary), cast(hunter2 as binary), GCM)",
            f"aes_encrypt(cast(c_name#1 as binary), cast({MASK} as binary), GCM)",
        ),
        (
            "aes_encrypt(cast(c#1 as binary), cast(hunter2#(x as binary), GCM)",
            f"aes_encrypt(cast(c#1 as binary), cast({MASK})",
        ),
        (
            "aes_decrypt(unhex(c#1), unhex(hun(ter)2hunter2), encode(hunter2, UTF-8), cast(k#2L as binary))",
            f"aes_decrypt(unhex(c#1), unhex({MASK}), encode({MASK}), cast(k#2L as binary))",
        ),
        (
            "aes_encrypt(encode(upper(c#1), UTF-8), cast(concat(hunter2, cast(salt#2 as string)) as binary))",
            f"aes_encrypt(encode(upper(c#1), UTF-8), cast({MASK} as binary))",
        ),
        ("aes_encrypt(cast(c#1 as string), unhex(hunter2", f"aes_encrypt(cast(c#1 as string), unhex({MASK}"),
        ("Map(url -> u, password -> hunter2)", f"Map(url -> u, password -> {MASK})"),
        ("(('password', 'hunter2'), ('n', '1'))", f"(('password', '{MASK}'), ('n', '1'))"),
        (
            "penstock run --token hunter2 --rest-password hunter2 job.py",
            f"penstock run --token {MASK} --rest-password {MASK} job.py",
        ),
        ("sent eyJhbGciOiJI.hunter2.c2lnbmVk to it", f"sent {MASK} to it"),
        ("curl -H 'Bearer hunter2hunter2hunter2'", f"curl -H 'Bearer {MASK}'"),
        ("-----BEGIN PRIVATE KEY-----\nhunter2\n-----END", f"-----BEGIN PRIVATE KEY-----{MASK}-----END"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
        ("abfss://data@account.dfs.core/x", "abfss://data@account.dfs.core/x"),
        ("bypass=1, compass=2, passes: 3, design = 4", "bypass=1, compass=2, passes: 3, design = 4"),
        ("join on sessionid#12 = id", "join on sessionid#12 = id"),
        ("HASH(customer#12), 4 tokens of words", "HASH(customer#12), 4 tokens of words"),
        ("join on pass_id = id", "join on pass_id = id"),
        ("SORT(sig#3 ASC), pass 2 of 3", "SORT(sig#3 ASC), pass 2 of 3"),
    ],
)
def test_secrets_in_texts_are_masked(text: str, expected: str) -> None:
    assert mask(text) == expected
    assert "hunter2" not in mask(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 'a', b FROM t WHERE kind = 'token' AND c = 'd'",) * 2,
        ("SELECT * FROM t WHERE password = 'hunter2''s'", f"SELECT * FROM t WHERE password = '{MASK}'"),
        ('SELECT * FROM t WHERE api_key <=> "hunter2"', f"SELECT * FROM t WHERE api_key <=> '{MASK}'"),
        ("SELECT * FROM t WHERE token IN ('hunter2')", f"SELECT * FROM t WHERE token IN ('{MASK}')"),
        ("OPTIONS (url 'u', password 'hunter2')", f"OPTIONS (url 'u', password '{MASK}')"),
        ("OPTIONS ('password' \"hunter2\", 'url' 'u')", f"OPTIONS ('password' '{MASK}', 'url' 'u')"),
        ("map('fs.secret.key', 'hunter2', 'a', 'b')", f"map('fs.secret.key', '{MASK}', 'a', 'b')"),
        ("SELECT f(password'hunter2", f"SELECT f(password'{MASK}'"),
        ("SELECT aes_decrypt(c, 'hunter2'), 'b'", f"SELECT aes_decrypt(c, '{MASK}'), '{MASK}'"),
        ("OPTIONS (user 'me', pass 'hunter2')", f"OPTIONS (user 'me', pass '{MASK}')"),
        ("url 'jdbc:postgresql://me:hunter2@db/shop'", f"url 'jdbc:postgresql://me:{MASK}@db/shop'"),
    ],
)
def test_secrets_in_sql_statements_are_masked(text: str, expected: str) -> None:
    assert mask_sql(text) == expected
    assert "hunter2" not in mask_sql(text)


@pytest.mark.thorough
def test_masking_takes_linear_time() -> None:
    begun = time.process_time()
    words = (
        "x",
        "password",
        "a:",
        "password=",
        "://a:",
        "password={",
        "--token ",
        "oracle:a:b/",
        "cookie: ",
        "eyJ",
        "a.",
    )
    for word in words:
        mask(word * (400_000 // len(word)))
    for word in ("password ", "password'", " ", "password like "):
        mask_sql("password" + word * 2_000)
        mask_sql("password" + " " * 100_000)
    assert time.process_time() - begun < 5  # quadratic time would be minutes


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("rest.token", "abc", MASK),
        ("db.password", "hunter2", MASK),
        ("fs.s3a.secret.key", "x", MASK),
        ("db.pass", "hunter2", MASK),
        ("sig", "hunter2", MASK),
        ("cookie", "hunter2", MASK),
        ("signature", "hunter2", MASK),
        ("execution.pass_count", "4", "4"),
        ("scan.parallelism", 4, "4"),
        ("url", "http://a:b@c", f"http://a:{MASK}@c"),
    ],
)
def test_values_of_secret_keys_are_masked(key: str, value: str | int, expected: Any) -> None:
    assert mask_value(key, value) == expected
