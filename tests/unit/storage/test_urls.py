"""Names of folders in object stores and HDFS."""

import pytest

from beam_spark_runner.storage.urls import StorageUrl, is_url, parse_storage_url


@pytest.mark.parametrize(
    ("url", "spark", "beam"),
    [
        ("s3://box/tmp", "s3a://box/tmp", "s3://box/tmp"),
        ("s3a://box/tmp/", "s3a://box/tmp", "s3://box/tmp"),
        ("s3://box", "s3a://box", "s3://box"),
        ("gs://box/a/b//", "gs://box/a/b", "gs://box/a/b"),
        ("hdfs://name:8020/tmp", "hdfs://name:8020/tmp", "hdfs://tmp"),
        ("hdfs:///tmp/x", "hdfs:///tmp/x", "hdfs://tmp/x"),
        (
            "abfss://box@us.dfs.core.windows.net/tmp",
            "abfss://box@us.dfs.core.windows.net/tmp",
            "azfs://us/box/tmp",
        ),
        (
            "abfs://box@us.blob.core.chinacloudapi.cn",
            "abfs://box@us.blob.core.chinacloudapi.cn",
            "azfs://us/box",
        ),
        (
            "azfs://us/box/tmp/t",
            "abfss://box@us.dfs.core.windows.net/tmp/t",
            "azfs://us/box/tmp/t",
        ),
        ("azfs://us/box", "abfss://box@us.dfs.core.windows.net", "azfs://us/box"),
    ],
)
def test_each_system_gets_the_name_that_it_knows(url: str, spark: str, beam: str) -> None:
    assert parse_storage_url(url) == StorageUrl(spark, beam)
    assert is_url(url)
    # Both are names of the same folder.
    assert parse_storage_url(spark).spark == spark


def test_what_is_in_a_folder() -> None:
    assert parse_storage_url("s3://box/tmp") / "a" / "b" == StorageUrl(
        "s3a://box/tmp/a/b", "s3://box/tmp/a/b"
    )


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
        parse_storage_url(url)


@pytest.mark.parametrize("path", ["/tmp/x", "relative", "C:/x"])
def test_paths_are_no_urls(path: str) -> None:
    assert not is_url(path)
