"""Names of folders in object stores and HDFS."""

import pytest

from beam_spark_runner.storage.urls import hadoop_url, is_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://box/tmp", "s3a://box/tmp"),
        ("s3a://box/tmp/", "s3a://box/tmp"),
        ("s3://box", "s3a://box"),
        ("gs://box/a/b//", "gs://box/a/b"),
        ("hdfs://name:8020/tmp", "hdfs://name:8020/tmp"),
        ("hdfs:///tmp/x", "hdfs:///tmp/x"),
        ("abfss://box@us.dfs.core.windows.net/tmp", "abfss://box@us.dfs.core.windows.net/tmp"),
        (
            "abfs://box@us.blob.core.chinacloudapi.cn",
            "abfs://box@us.blob.core.chinacloudapi.cn",
        ),
        ("azfs://us/box/tmp/t", "abfss://box@us.dfs.core.windows.net/tmp/t"),
        ("azfs://us/box", "abfss://box@us.dfs.core.windows.net"),
    ],
)
def test_hadoops_connectors_know_the_url(url: str, expected: str) -> None:
    assert hadoop_url(url) == expected
    assert is_url(url)
    assert hadoop_url(expected) == expected


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://host/x", "is none of s3://, s3a://, gs://"),
        ("s3:///tmp", "the bucket is missing"),
        ("gs://", "is none of"),
        ("hdfs://name:8020", "the path is missing"),
        ("azfs://us", "the storage account or the container is missing"),
        ("abfss://us.dfs.core.windows.net/tmp", r"CONTAINER@ACCOUNT\.dfs"),
        ("s3://box/a\nb", "is none of"),
    ],
)
def test_other_urls_are_refused(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        hadoop_url(url)


@pytest.mark.parametrize("path", ["/tmp/x", "relative", "C:/x"])
def test_paths_are_no_urls(path: str) -> None:
    assert not is_url(path)
